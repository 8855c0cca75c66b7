"""A dynolog that runs already passes windows on, and whatever else answers is one line."""

import time
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, MissingRequirement
from decodescope.analyzer.readers.reading import load
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto import config_source
from decodescope.attach.kineto.config_source import Dynolog
from decodescope.attach.kineto.daemon_socket import DaemonSocket, daemon_address
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import Process, read_process
from decodescope.attach.kineto.window_config import Timing
from tests.helpers.dynolog import fake_dynolog, rpc_server
from tests.helpers.libkineto import fake_process

QUICK = Timing(poll_s=1.0, lead_s=0.2, refused_s=0.0, trace_s=2.0)


def silent(stage: str) -> None:
    """Nobody looks at the stages."""


def process_of(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


def test_dynolog_passes_windows_on_to_the_processes_of_a_job(
    socket_folder: str, tmp_path: Path
) -> None:
    """The messages of the fake processes are of job 0, so dynolog knows none of job 7."""
    folder = {"KINETO_ONDEMAND_TRACE_DIR": str(tmp_path)}
    with (
        fake_dynolog(socket_folder) as (server, port),
        fake_process(socket_folder, **folder) as one,
        fake_process(socket_folder, SLURM_JOB_ID="7", **folder) as other,
    ):
        time.sleep(1)  # until both have asked
        processes = [process_of(one.pid), process_of(other.pid)]
        window = KinetoDoor(processes[:1], dynolog_port=port, timing=QUICK).window(
            WindowPlan(tmp_path, 50), silent
        )
        with pytest.raises(MissingRequirement, match=f"process {other.pid} .*did not ask"):
            KinetoDoor(processes, dynolog_port=port, timing=QUICK).window(
                WindowPlan(tmp_path, 50), silent
            )
    (path,) = window.traces
    assert len(load(path).ops) == 50
    asked = [request for request in server.requests if request["fn"] != "getVersion"]
    assert [request["job_id"] for request in asked] == [0, 0, 7]
    assert [request["pids"] for request in asked] == [[one.pid], [one.pid], [other.pid]]
    assert Path(socket_folder, "dynolog").exists()


@pytest.mark.parametrize(
    "answer", [None, b"", b"\0" * 100, b'{"status":"failed"}', b"[]", b'{"version":"1"}']
)
def test_what_is_no_answer_of_dynolog_is_one_line(answer: bytes | None) -> None:
    with rpc_server(lambda _: answer) as port:
        started_s = time.monotonic()
        with pytest.raises(DecodescopeError, match=rf"port {port}: ") as raised:
            Dynolog({7: 0}, port, QUICK).deliver([7], str, lambda: None)
        assert time.monotonic() - started_s < 5
    assert "\n" not in str(raised.value)


def test_an_answer_that_never_comes_or_never_ends_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_source, "_TIMEOUT_S", 0.3)

    def slow(_: bytes) -> None:
        time.sleep(0.6)

    for rpc in (slow, lambda _: bytes(2 << 20)):
        with rpc_server(rpc) as port, pytest.raises(DecodescopeError, match="does not answer"):
            Dynolog({7: 0}, port, QUICK)


def test_a_taken_socket_without_dynolog_says_what_to_end(
    socket_folder: str, tmp_path: Path
) -> None:
    with (
        rpc_server(lambda _: None) as port,
        DaemonSocket(daemon_address(socket_folder)),
        fake_process(socket_folder, KINETO_ONDEMAND_TRACE_DIR=str(tmp_path)) as process,
        pytest.raises(MissingRequirement, match=f"no dynolog answers at port {port}; end that"),
    ):
        KinetoDoor([process_of(process.pid)], dynolog_port=port, timing=QUICK).window(
            WindowPlan(tmp_path, 50), silent
        )
    assert list(tmp_path.iterdir()) == []
