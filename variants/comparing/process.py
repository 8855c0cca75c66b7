"""Runs one job of a comparison in a process of its own, and never leaves one behind."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

import msgspec

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.protocol import Failure, FrameDecoder, Progress
from decodescope.variants.comparing.jobs import AccuracyDone, Job, JobMessage, Result, RunDone

WORKER = (sys.executable, "-m", "decodescope.variants.comparing.worker")

_READ_BYTES = 1 << 16
_TERMINATE_GRACE_S = 3.0
_DRAIN_S = 1.0


def run_job(job: Job, say: Callable[[str], None], argv: tuple[str, ...] = WORKER) -> Result:
    """Do `job` in a fresh process and return what it gave; `say` hears its stages.

    What the process writes to stderr appears on ours as it comes. It is a process group of its own,
    so Ctrl-C reaches only this process; the group is ended whatever happens here.

    Raises:
        InputError: the child refused the job as bad input.
        MissingRequirement: it lacked something, crashed, or died; one line says which.
    """
    with _child(job, argv) as child:
        return child.result(say)


class _Child:
    """A started process with its job written, and a thread that passes on its stderr."""

    def __init__(self, job: Job, argv: tuple[str, ...]) -> None:
        self._process = _start(argv)
        assert self._process.stderr is not None
        self._last_line: deque[str] = deque(maxlen=1)
        self._errors = threading.Thread(
            target=_pass_on, args=(self._process.stderr, self._last_line), daemon=True
        )
        self._errors.start()
        self._job = job

    def result(self, say: Callable[[str], None]) -> Result:
        """Read frames up to the result."""
        self._write_job()
        for message in self._messages():
            if isinstance(message, Progress):
                say(message.stage)
            elif isinstance(message, Failure):
                raise _told(message)
            elif isinstance(message, RunDone | AccuracyDone):
                return message
        raise MissingRequirement(self._how_it_ended())

    def end(self) -> None:
        """End the whole group: the leader, and whatever it started."""
        process = self._process
        if process.poll() is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TERMINATE_GRACE_S)
        self._signal(signal.SIGKILL)
        process.wait()
        self._errors.join(_DRAIN_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def wait(self) -> None:
        """Let a child that gave its result end by itself."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERMINATE_GRACE_S)

    def _write_job(self) -> None:
        assert self._process.stdin is not None
        # A child that died at once is told of by what it left behind.
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(self._job))
            self._process.stdin.close()

    def _messages(self) -> Iterator[object]:
        assert self._process.stdout is not None
        decoder = FrameDecoder(JobMessage)
        while data := os.read(self._process.stdout.fileno(), _READ_BYTES):
            try:
                yield from decoder.feed(data)
            except InputError as error:
                raise MissingRequirement(f"its answer cannot be read ({error})") from error

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        self._errors.join(_DRAIN_S)
        how = f"killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        said = f"; it said last: {self._last_line[0]}" if self._last_line else ""
        return f"its process {how}{said}"

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextmanager
def _child(job: Job, argv: tuple[str, ...]) -> Iterator[_Child]:
    child = _Child(job, argv)
    try:
        yield child
        child.wait()
    finally:
        child.end()


def _start(argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise MissingRequirement(f"its process cannot be started: {error}") from error


def _pass_on(stream: IO[bytes], last_line: deque[str]) -> None:
    with stream:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            if line:
                last_line.append(line)
                print(line, file=sys.stderr)  # noqa: T201


def _told(failure: Failure) -> DecodescopeError:
    if failure.exit_code == InputError.exit_code:
        return InputError(failure.message)
    return MissingRequirement(failure.message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
