"""A measured process ends with its block, however the block ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from decodescope.analyzer.io.child_processes import running
from tests.helpers.processes import gone

SLEEPING = (sys.executable, "-c", "import time; time.sleep(600)")
PRINTING = (sys.executable, "-c", "print('done')")


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises `KeyboardInterrupt`, also where the shell started the tests to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def printed() -> bytes:
    with running(PRINTING, stdout=subprocess.PIPE) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    return bytes(output)


def test_a_process_that_ends_keeps_its_output_and_its_code() -> None:
    assert printed() == b"done\n"


def test_a_thread_can_run_one() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(printed).result() == b"done\n"


def test_the_end_of_the_block_waits_for_the_process() -> None:
    with running(PRINTING, stdout=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == 0


def test_an_exception_kills_the_process() -> None:
    with pytest.raises(ZeroDivisionError), running(SLEEPING) as process:
        1 / 0  # noqa: B018
    assert process.returncode == -signal.SIGKILL


def test_an_exception_kills_what_a_process_started_in_its_session() -> None:
    script = f"import subprocess; print(subprocess.Popen({SLEEPING}).pid, flush=True); input()"
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    command = running((sys.executable, "-c", script), **pipes, start_new_session=True)
    started: list[bytes] = []
    with pytest.raises(ZeroDivisionError), command as process:
        raise ZeroDivisionError(started.append(process.stdout.readline()))
    assert gone(int(started[0]))


def test_an_interruption_kills_a_process_that_has_just_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        """The signal arrives after the start and before the caller has the process."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), running(SLEEPING):
        pytest.fail("the block ran")
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_command_that_cannot_be_started_leaves_the_handlers() -> None:
    with pytest.raises(FileNotFoundError), running(["/no/such/command"]):
        pytest.fail("the block ran")
