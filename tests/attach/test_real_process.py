"""Real processes of PyTorch on the CPU, with the libkineto that is part of it."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.trace import Trace
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import job_processes

pytest.importorskip("torch")
pytestmark = pytest.mark.engines

_STEPS = """
import os, signal, time, torch
from torch.profiler import record_function
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
ranks = "RANK" in os.environ
if ranks:
    torch.distributed.init_process_group("gloo")
x = torch.randn(32, 32)
print("ready", flush=True)
while True:
    with record_function("decode_step"):
        y = x @ x
        if ranks:
            try:
                torch.distributed.all_reduce(y)
            except RuntimeError:  # the other rank was told to end first
                os._exit(0)
    time.sleep(0.002)
"""


@contextmanager
def decoding(program: str = _STEPS, **environment: str) -> Iterator["Popen[str]"]:
    """A process that decodes until it is told to end, and must then end by itself."""
    variables = {**os.environ, "KINETO_USE_DAEMON": "1", **environment}
    variables = {name: value for name, value in variables.items() if value}
    with Popen([sys.executable, "-c", program], env=variables, stdout=PIPE, text=True) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            process.kill()


def wait_until_ready(process: "Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def silent(stage: str) -> None:
    """Nobody looks at the stages."""


def steps_ns(trace: Trace) -> list[int]:
    """When each step of a trace begins, on the wall clock."""
    name = trace.names.index("decode_step")
    ranges = trace.ranges.take(trace.ranges.name == name)
    return [trace.base_ns + int(start_ns) for start_ns in ranges.start_ns]


def test_the_command_opens_a_window_through_the_socket_of_dynolog(tmp_path: Path) -> None:
    lock = Path(tempfile.gettempdir(), "decodescope-tests-dynolog.lock")
    with lock.open("w") as one_at_a_time, decoding() as process:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        wait_until_ready(process)
        began_ns = time.time_ns()
        done = subprocess.run(
            [sys.executable, "-m", "decodescope", "attach", str(process.pid), "--json"],
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        ended_ns = time.time_ns()
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (path,) = tmp_path.iterdir()
    assert report["source"]["path"] == path.name
    assert report["observer"]["door"] == "kineto"
    assert set(report) == set(Report.__struct_fields__)
    trace = load(path)
    starts_ns = steps_ns(trace)
    assert len(starts_ns) > 20
    assert began_ns < starts_ns[0] < starts_ns[-1] < ended_ns
    assert 0.2e9 < starts_ns[-1] - starts_ns[0] < 0.4e9
    assert "aten::mm" in trace.names


def test_two_ranks_have_one_window_on_one_clock(socket_folder: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "KINETO_IPC_SOCKET_DIR": socket_folder,
    }
    with ExitStack() as stack:
        ranks = [stack.enter_context(decoding(RANK=str(rank), **job)) for rank in range(2)]
        for process in ranks:
            wait_until_ready(process)
        processes = job_processes([ranks[1].pid])
        assert [process.pid for process in processes] == [rank.pid for rank in ranks]
        window = KinetoDoor(processes).window(WindowPlan(tmp_path, 300), silent)
    traces = [load(path) for path in window.traces]
    first, second = (steps_ns(trace) for trace in traces)
    # Each all-reduce ends on both at one moment, and the next step begins 2 ms later.
    apart_ns = [min(abs(ns - other_ns) for other_ns in second) for ns in first]
    assert len(first) > 20
    assert sorted(apart_ns)[len(apart_ns) // 2] < 1_000_000


def test_a_program_may_open_the_door_itself(socket_folder: str, tmp_path: Path) -> None:
    own = "import os; os.environ['KINETO_USE_DAEMON'] = '1'"
    folder = {"KINETO_IPC_SOCKET_DIR": socket_folder}
    with decoding(own + _STEPS, KINETO_USE_DAEMON="", **folder) as process:
        wait_until_ready(process)
        door = KinetoDoor(job_processes([process.pid]))
        assert len(steps_ns(load(door.window(WindowPlan(tmp_path, 300), silent).traces[0]))) > 20


def test_an_interrupted_window_leaves_the_process_unharmed(
    socket_folder: str, tmp_path: Path
) -> None:
    """The process finds its folder gone, says so, and takes the next window."""
    variables = {"KINETO_IPC_SOCKET_DIR": socket_folder, "KINETO_ONDEMAND_TRACE_DIR": str(tmp_path)}
    with decoding(**variables) as process:
        wait_until_ready(process)
        door = KinetoDoor(job_processes([process.pid]))

        def interrupt(stage: str) -> None:
            if stage.startswith("a window of"):
                raise KeyboardInterrupt

        plan = WindowPlan(tmp_path, 300)
        with pytest.raises(KeyboardInterrupt):
            door.window(plan, interrupt)
        assert list(tmp_path.iterdir()) == []
        time.sleep(5)
        assert list(tmp_path.iterdir()) == []
        assert len(steps_ns(load(door.window(plan, silent).traces[0]))) > 20
