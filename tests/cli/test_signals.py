"""Signals that end a command: nothing unfinished stays, no process; the code is 128 + signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.processes import PATIENCE_S, children, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

RECORDING = str(bundled_recordings()[0])
START = """
import signal, sys, time
from decodescope.cli import ending
ending._GRACE_S = 600
# A test session in a shell's background ignores Ctrl-C, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
def ready(*_, **__):
    print("READY", file=sys.__stdout__, flush=True)
    # A signal that the kernel delivers to a thread of torch does not interrupt a sleep of the main
    # thread, where Python's handler runs.
    while True:
        time.sleep(0.02)
"""
# A command that has not ended soon after a signal is ended.
SOON = "ending._GRACE_S = 0.3\n"
# What a command waits in, with its output or its temporary folder open.
WRITING = """
from decodescope.analyzer.chrome import chrome_export
def events(*_):
    yield "{}"
    ready()
chrome_export._events = events
"""
DECODING = """
from decodescope.variants.measuring import run
run.measure_run = ready
"""
# The processes that read the files of ranks never end by themselves.
READING = """
from decodescope.analyzer.reports import rank_reading
rank_reading._WORTH_BYTES = 0
rank_reading._cores = lambda: 2
rank_reading._START = rank_reading._START.replace(
    "main(sys.argv[2:])",
    "import time; from decodescope.analyzer.reports import rank_reading as w; "
    "w.read_rank = lambda path: time.sleep(600); main(sys.argv[2:])",
)
"""
# A call into a library that no signal interrupts. Other threads run meanwhile.
DEAF = """
import hashlib
from decodescope.analyzer.chrome import chrome_export
def events(*_):
    yield "{}"
    print("READY", file=sys.__stdout__, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)
chrome_export._events = events
"""
# As while a native thread starts: the signal goes to another thread, and the main thread, which
# alone calls Python's handlers, waits for the system.
MASKED = """
import threading
from decodescope.analyzer.chrome import chrome_export
def events(*_):
    yield "{}"
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    print("READY", file=sys.__stdout__, flush=True)
    time.sleep(600)
chrome_export._events = events
"""
SWALLOWING = """
def hold(*_):
    try:
        ready()
    finally:
        time.sleep(600)
"""
SWALLOWED = (
    SWALLOWING
    + """
from decodescope.analyzer.chrome import chrome_export
chrome_export._events = hold
"""
)
FINISHING = (
    SWALLOWING
    + """
from decodescope.variants.comparing import command
command.compare_variants = hold
"""
)
IGNORING = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
CLEANING = """
import os
os.unlink = ready
"""
# The command while it imports the others.
IMPORTING = """
class Slow:
    def find_spec(self, name, *_):
        if name == "decodescope.cli.main":
            ready()
sys.meta_path.insert(0, Slow())
from decodescope.__main__ import main
main()
"""
MAIN = "from decodescope.cli.main import main\nmain()\n"

EXPORT = ("export", RECORDING, "--to", "chrome", "-o", "out.json.gz")
RUN = ("run", "--model", "tiny", "--device", "cpu", "--tokens", "20", "--trace", "out.json.gz")
COMPARE = ("compare", "--model", "tiny", "--device", "cpu", "--variants", "eager,fused")
RANKS = ("analyze", RECORDING, str(bundled_recordings()[1]))
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command, changed by some Python, in an empty folder with temporary files below."""
    started: list[Process] = []

    def begin(change: str, *arguments: str) -> Process:
        (tmp_path / "temporary").mkdir()
        (tmp_path / "work").mkdir()
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", START + change + MAIN, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path / "work",
                env=os.environ
                | {
                    "TMPDIR": str(tmp_path / "temporary"),
                    "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled"),
                },
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def until_ready(process: Process) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"


def left(tmp_path: Path) -> list[str]:
    return [path.name for folder in ("temporary", "work") for path in (tmp_path / folder).iterdir()]


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_during_the_imports_ends_the_command_quietly(
    start: Start, ignored: bool
) -> None:
    """As any program, unless it was started to ignore one."""
    process = start(IGNORING.replace("HUP", "INT") * ignored + IMPORTING, *EXPORT)
    until_ready(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert -process.returncode == (signal.SIGTERM if ignored else signal.SIGINT)


@pytest.mark.parametrize("number", ENDING)
def test_an_export_leaves_nothing(start: Start, tmp_path: Path, number: int) -> None:
    process = start(WRITING, *EXPORT)
    until_ready(process)
    (part,) = left(tmp_path)
    assert part.endswith(".part")
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE_S) == ("", "\n")
    assert process.returncode == 128 + number
    assert left(tmp_path) == []


def test_a_run_leaves_nothing(start: Start, tmp_path: Path) -> None:
    process = start(DECODING, *RUN)
    until_ready(process)
    assert left(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert left(tmp_path) == []


def processes_of(process: Process, count: int) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := children(process.pid)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_analysis_of_ranks_ends_the_processes_that_read(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start(READING, *RANKS)
    reading = processes_of(process, 2)
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE_S)[0] == ""
    assert process.returncode == 128 + number
    assert all(gone(pid) for pid in reading)
    assert left(tmp_path) == []


def test_processes_that_read_end_with_a_killed_command(start: Start) -> None:
    process = start(READING, *RANKS)
    reading = processes_of(process, 2)
    process.kill()
    assert all(gone(pid) for pid in reading)


@pytest.mark.parametrize(
    ("change", "number"),
    [*((DEAF, number) for number in ENDING), (SWALLOWED, signal.SIGTERM)],
    ids=[*(f"deaf-{number}" for number in ENDING), "swallowed"],
)
def test_a_command_that_does_not_hear_a_signal_is_ended(
    start: Start, tmp_path: Path, change: str, number: int
) -> None:
    """What it leaves, the next one removes."""
    process = start(SOON + change, *EXPORT)
    until_ready(process)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert all(name.endswith(".part") for name in left(tmp_path))


def test_a_signal_that_another_thread_gets_interrupts(start: Start, tmp_path: Path) -> None:
    process = start(MASKED, *EXPORT)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "\n"
    assert left(tmp_path) == []


def test_what_a_command_finishes_after_a_signal_is_said(start: Start) -> None:
    process = start(SOON + FINISHING, *COMPARE)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    said = next(line for line in process.stderr if "another signal" in line)
    assert said == (
        "decodescope: the complete rounds are being compared; another signal ends it at once\n"
    )
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_that_is_sent_twice_at_once_is_one(start: Start, tmp_path: Path) -> None:
    """As by `timeout`, which signals the process and its group."""
    process = start(WRITING, *EXPORT)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert left(tmp_path) == []


def test_a_second_signal_does_not_wait_for_the_cleaning_up(start: Start) -> None:
    process = start(WRITING + CLEANING, *EXPORT)
    until_ready(process)
    process.send_signal(signal.SIGINT)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE_S)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_that_is_ignored_from_the_start_stays_ignored(start: Start) -> None:
    """As under `nohup`."""
    process = start(IGNORING + WRITING, *EXPORT)
    until_ready(process)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_signal_cancels_a_loop_and_breaks_into_nothing() -> None:
    """The loop runs on to its next wait."""
    code = """
import asyncio, os, signal
from decodescope.cli.ending import Ending, end_with
ending = Ending()
async def main():
    os.kill(os.getpid(), signal.SIGTERM)
    print("goes on", flush=True)
    try:
        await asyncio.sleep(600)
    finally:
        print("cleans up", flush=True)
end_with(lambda: ending.run(main), ending=ending)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("goes on\ncleans up\n", "")
    assert ended.returncode == 128 + signal.SIGTERM
