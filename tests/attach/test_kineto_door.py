"""Windows of processes that speak libkineto's protocol, and every way in which one fails."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.readers.reading import load
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto import kineto_door
from decodescope.attach.kineto.daemon_socket import DaemonSocket, daemon_address
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import Process, read_process
from decodescope.attach.kineto.window_config import Timing
from tests.helpers.libkineto import fake_process

QUICK = Timing(poll_s=1.0, lead_s=0.2, refused_s=0.0, silent_s=1.0, trace_s=1.0, iterations_s=1.0)


def silent(stage: str) -> None:
    """Nobody looks at the stages."""


def process_of(running: "Popen[str]") -> Process:
    process = read_process(running.pid)
    assert process is not None
    return process


@contextmanager
def door_to(
    socket_folder: str, *behaviours: str, trace_folder: Path, all_must_ask: bool = True
) -> Iterator[tuple[KinetoDoor, list["Popen[str]"]]]:
    """A door into one process for each of the behaviours, which write below `trace_folder`."""
    with ExitStack() as stack:
        variables = {"KINETO_ONDEMAND_TRACE_DIR": str(trace_folder)}
        running = [
            stack.enter_context(fake_process(socket_folder, behaviour, **variables))
            for behaviour in behaviours
        ]
        processes = [process_of(process) for process in running]
        yield KinetoDoor(processes, all_must_ask, dynolog_port=1, timing=QUICK), running


@pytest.fixture
def trace_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> WindowPlan:
    folder = tmp_path / "out"
    folder.mkdir()
    return WindowPlan(folder, duration_ms=50)


@pytest.fixture
def nothing_left(socket_folder: str, trace_folder: Path, tmp_path: Path) -> Iterator[None]:
    """The test leaves no descriptor, no socket and no file."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before
    assert not Path(socket_folder, "dynolog").exists()
    assert list(trace_folder.iterdir()) == []
    assert list(tmp_path.glob("out/.*")) == []


@pytest.mark.usefixtures("nothing_left")
def test_a_window_of_one_process(socket_folder: str, trace_folder: Path, plan: WindowPlan) -> None:
    stages: list[str] = []
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, running):
        began_ms = time.time() * 1000
        window = door.window(plan, stages.append)
        assert running[0].poll() is None
        assert running[0].stdout is not None
        config = json.loads(running[0].stdout.readline())
    (path,) = window.traces
    assert path.parent == plan.folder
    assert path.name.startswith(f"decodescope-attach-{running[0].pid}-20")
    assert path.suffix == ".json"
    assert len(load(path).ops) == 50
    assert window.observer.door == "kineto"
    assert window.observer.target == door.target
    assert door.target.startswith(f"process {running[0].pid} (python")
    assert len(stages) == 2
    assert config["ACTIVITIES_DURATION_MSECS"] == "50"
    assert config["ACTIVITIES_WARMUP_PERIOD_SECS"] == "1"
    assert began_ms < int(config["PROFILE_START_TIME"]) < time.time() * 1000
    assert config["PROFILE_WITH_STACK"] == config["PROFILE_REPORT_INPUT_SHAPES"] == "false"
    assert not {"TEARDOWN_CUPTI", "ACTIVITIES_ITERATIONS", "PROFILE_START_ITERATION"} & set(config)


@pytest.mark.usefixtures("nothing_left")
def test_a_relative_folder_begins_at_that_of_the_process(
    socket_folder: str, trace_folder: Path, plan: WindowPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace_folder.parent)
    with door_to(socket_folder, "traces", trace_folder=Path(trace_folder.name)) as (door, _):
        monkeypatch.chdir("/")
        assert len(door.window(plan, silent).traces) == 1


@pytest.mark.usefixtures("nothing_left")
def test_a_longer_warm_up_begins_as_early_and_the_window_later(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, running):
        # The time of a start is in whole milliseconds.
        began_ms = int(time.time() * 1000)
        door.window(replace(plan, added_warmup_s=1), silent)
        assert running[0].stdout is not None
        config = json.loads(running[0].stdout.readline())
    assert config["ACTIVITIES_WARMUP_PERIOD_SECS"] == "2"
    assert began_ms + 1000 * (QUICK.lead_s + 1) <= int(config["PROFILE_START_TIME"])


@pytest.mark.usefixtures("nothing_left")
def test_the_windows_of_several_processes_begin_at_one_moment(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    with door_to(socket_folder, "traces", "traces", "traces", trace_folder=trace_folder) as (
        door,
        running,
    ):
        window = door.window(plan, silent)
    assert [path.name.split("-")[2] for path in window.traces] == [
        str(process.pid) for process in running
    ]
    assert len({load(path).base_ns for path in window.traces}) == 1


@pytest.mark.usefixtures("nothing_left")
def test_windows_in_a_row_have_a_file_each(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, _):
        traces = {door.window(plan, silent).traces[0] for _ in range(3)}
    assert {path.name for path in traces} == {path.name for path in plan.folder.iterdir()}
    assert len(traces) == 3


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("behaviour", "others"), [("is late once", 0), ("is late once", 1), ("is an answer behind", 0)]
)
def test_a_process_that_is_late_gets_another_window(
    socket_folder: str, trace_folder: Path, plan: WindowPlan, others: int, behaviour: str
) -> None:
    stages: list[str] = []
    behaviours = ("traces",) * others + (behaviour,)
    with door_to(socket_folder, *behaviours, trace_folder=trace_folder) as (door, running):
        window = door.window(plan, stages.append)
        assert running[-1].stdout is not None
        configs = [json.loads(running[-1].stdout.readline()) for _ in range(2)]
    assert len({load(path).base_ns for path in window.traces}) == 1
    assert len(list(plan.folder.iterdir())) == 1 + others
    assert int(configs[0]["PROFILE_START_TIME"]) < int(configs[1]["PROFILE_START_TIME"])
    assert "a process was too late for the window; waiting for another one" in stages


def test_a_window_of_iterations_names_them(
    socket_folder: str, trace_folder: Path, tmp_path: Path
) -> None:
    stages: list[str] = []
    plan = WindowPlan(tmp_path, duration_ms=50, iterations=8)
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, running):
        door.window(plan, stages.append)
        assert running[0].stdout is not None
        config = json.loads(running[0].stdout.readline())
    assert config["ACTIVITIES_ITERATIONS"] == "8"
    assert config["PROFILE_START_ITERATION"] == "0"
    assert int(config["PROFILE_START_ITERATION_ROUNDUP"]) > 0
    assert stages[-1].endswith(": 8 iterations, or 50 ms if it counts none")


@pytest.mark.usefixtures("nothing_left")
def test_processes_that_do_not_ask_are_left_out_if_they_may_and_said(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    said: list[str] = []
    with door_to(
        socket_folder, "silent", "traces", "busy", trace_folder=trace_folder, all_must_ask=False
    ) as (door, running):
        window = door.window(plan, said.append)
        titles = [process_of(running[place]).title for place in (0, 2)]
    assert f"no window of {titles[0]}: did not ask for it in time" in said
    assert f"no window of {titles[1]}: a profiler runs in it already" in said
    assert len(window.traces) == 1
    assert window.observer.target.startswith(f"process {running[1].pid} ")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("behaviour", "error", "code", "message"),
    [
        ("silent", MissingRequirement, 3, "did not ask for a window in time"),
        ("busy", DecodescopeError, 2, "a profiler runs in it already"),
        ("dies", DecodescopeError, 2, "ended, and has no trace of the window"),
        ("writes nothing", DecodescopeError, 2, "wrote no trace"),
        ("cuts off", MissingRequirement, 3, "its trace is cut off; "),
        ("stops writing", MissingRequirement, 3, "stopped writing its trace to "),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_a_process_that_fails_is_one_line(
    socket_folder: str,
    trace_folder: Path,
    plan: WindowPlan,
    behaviour: str,
    error: type[DecodescopeError],
    code: int,
    message: str,
    others: int,
) -> None:
    behaviours = ("traces",) * others + (behaviour,)
    with door_to(socket_folder, *behaviours, trace_folder=trace_folder) as (door, running):
        began_s = time.monotonic()
        with pytest.raises(error) as raised:
            door.window(plan, silent)
        assert time.monotonic() - began_s < 10
        if behaviour != "dies":
            assert running[-1].poll() is None
    text = str(raised.value)
    assert text.startswith(f"process {running[-1].pid} (python")
    assert message in text
    assert "\n" not in text
    assert raised.value.exit_code == code
    assert list(plan.folder.iterdir()) == []


@pytest.mark.usefixtures("nothing_left")
def test_a_full_or_unwritable_folder_is_one_line(
    socket_folder: str, trace_folder: Path, plan: WindowPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = WindowPlan(plan.folder / "missing", 50)
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, _):
        with pytest.raises(InputError, match=r"missing: the trace cannot be written there \(No su"):
            door.window(missing, silent)
        monkeypatch.setattr(kineto_door, "_MIN_FREE_BYTES", 1 << 80)
        with pytest.raises(MissingRequirement, match="MB are free where the processes write"):
            door.window(plan, silent)
        monkeypatch.undo()
        trace_folder.rmdir()
        with pytest.raises(MissingRequirement, match=r"cannot be written to \(No such file"):
            door.window(plan, silent)
        trace_folder.mkdir()


@pytest.mark.usefixtures("nothing_left")
def test_a_folder_that_is_removed_during_a_window_is_one_line(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    def remove(stage: str) -> None:
        if stage.startswith("a window of"):
            shutil.rmtree(trace_folder)

    with (
        door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, _),
        pytest.raises(MissingRequirement, match=r"cannot be read \(No such file") as raised,
    ):
        door.window(plan, remove)
    assert str(raised.value).startswith(f"{trace_folder}: ")
    trace_folder.mkdir()


@pytest.mark.usefixtures("nothing_left")
def test_of_several_traces_all_are_kept_or_none(
    socket_folder: str, trace_folder: Path, plan: WindowPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodescope.attach.kineto import trace_files

    kept: list[Path] = []

    def full_at_the_second(folder: Path, *others: object) -> Path:
        if kept:
            raise OSError(28, "No space left on device")
        kept.append(write_new_file(folder, *others))  # type: ignore[arg-type]
        return kept[0]

    write_new_file = trace_files.write_new_file
    monkeypatch.setattr(trace_files, "write_new_file", full_at_the_second)
    with (
        door_to(socket_folder, "traces", "traces", trace_folder=trace_folder) as (door, _),
        pytest.raises(InputError, match="No space left on device"),
    ):
        door.window(plan, silent)
    assert len(kept) == 1
    assert list(plan.folder.iterdir()) == []


@pytest.mark.usefixtures("nothing_left")
def test_a_socket_that_is_taken_names_dynolog(
    socket_folder: str, trace_folder: Path, plan: WindowPlan
) -> None:
    with (
        door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, _),
        DaemonSocket(daemon_address(socket_folder)),
        pytest.raises(MissingRequirement, match="is taken, by dynolog or another") as raised,
    ):
        door.window(plan, silent)
    assert "no dynolog answers at port 1; end that process" in str(raised.value)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("after_s", [0.05, 0.3])
def test_an_interruption_leaves_nothing_and_the_process_unharmed(
    socket_folder: str, trace_folder: Path, plan: WindowPlan, after_s: float
) -> None:
    long = WindowPlan(plan.folder, duration_ms=500)
    with door_to(socket_folder, "traces", trace_folder=trace_folder) as (door, running):
        interruption = threading.Timer(after_s, signal.raise_signal, [signal.SIGINT])
        interruption.start()
        with pytest.raises(KeyboardInterrupt):
            door.window(long, silent)
        interruption.join()
        assert list(trace_folder.iterdir()) == []
        time.sleep(1)
        assert running[0].poll() is None
        assert len(door.window(plan, silent).traces) == 1


def test_processes_without_a_common_folder_are_refused(socket_folder: str, tmp_path: Path) -> None:
    with (
        fake_process(socket_folder) as one,
        fake_process(socket_folder, KINETO_ONDEMAND_TRACE_DIR=str(tmp_path)) as other,
        pytest.raises(InputError, match="KINETO_ONDEMAND_TRACE_DIR is different in them"),
    ):
        KinetoDoor([process_of(one), process_of(other)])
    for folder in ("a=b", "\udcff"):
        with (
            fake_process(socket_folder, KINETO_ONDEMAND_TRACE_DIR=f"{tmp_path}/{folder}") as one,
            pytest.raises(InputError, match="libkineto cannot read that name"),
        ):
            KinetoDoor([process_of(one)])


def test_a_relative_socket_is_bound_under_the_name_that_the_process_has_for_it(
    socket_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"KINETO_IPC_SOCKET_DIR": "sockets"}
    monkeypatch.chdir(socket_folder)
    with fake_process(socket_folder, **variables) as running:
        process = process_of(running)
        assert KinetoDoor([process])._address == "sockets/dynolog"
        monkeypatch.chdir("/")
        with pytest.raises(InputError, match=f"; run decodescope in {socket_folder}$"):
            KinetoDoor([process])
