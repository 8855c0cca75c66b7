"""Runs one job of a comparison in its own process, and always ends that process."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import IO

import msgspec

from decodescope.analyzer.errors import (
    InputError,
    InternalError,
    MissingRequirement,
    process_end,
)
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.protocol.messages import Failure, FrameDecoder, Progress
from decodescope.variants.comparing.jobs import AccuracyDone, Job, JobMessage, Result, RunDone

WORKER = (sys.executable, "-m", "decodescope.variants.comparing.job_worker")

_ERRORS = {kind.exit_code: kind for kind in (InputError, InternalError)}
_PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
_READ_BYTES = 1 << 16
_TERMINATE_GRACE_S = 3.0
_DRAIN_S = 1.0


def run_job(job: Job, say: Callable[[str], None], argv: tuple[str, ...] = WORKER) -> Result:
    """Do `job` in a new process and return its result; `say` is called with its stages.

    What the process writes to stderr appears on ours immediately. It is the leader of its own
    process group, so Ctrl-C reaches only this process; the group is always ended on return.

    Raises:
        InputError: the child rejected the job as bad input.
        InternalError: the child failed in a way that nobody foresaw.
        MissingRequirement: the child lacks a requirement, crashed or was killed.
    """
    with ExitStack() as stack:
        try:
            process = stack.enter_context(running(argv, **_PIPES, start_new_session=True))
        except OSError as error:
            raise MissingRequirement(f"its process cannot be started: {error}") from error
        return stack.enter_context(_Child(process)).do(job, say)


class _Child:
    """A started process, and a thread that passes on its stderr."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert self._process.stderr is not None
        self._last_line: deque[str] = deque(maxlen=1)
        self._errors = threading.Thread(
            target=_pass_on, args=(self._process.stderr, self._last_line), daemon=True
        )
        self._errors.start()

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the whole process group; a child that returned its result may exit first."""
        process = self._process
        if kind is None:
            self._wait()
        if process.poll() is None:
            self._signal(signal.SIGTERM)
            self._wait()
        self._signal(signal.SIGKILL)
        process.wait()
        self._errors.join(_DRAIN_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def do(self, job: Job, say: Callable[[str], None]) -> Result:
        """Write `job`, then read frames up to the result."""
        assert self._process.stdin is not None
        # A child that died at once is reported by its exit code below.
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(job))
            self._process.stdin.close()
        for message in self._messages():
            if isinstance(message, Progress):
                say(message.stage)
            elif isinstance(message, Failure):
                raise _ERRORS.get(message.exit_code, MissingRequirement)(message.message)
            elif isinstance(message, RunDone | AccuracyDone):
                return message
        raise MissingRequirement(self._how_it_ended())

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
        last = f"; its last output: {self._last_line[0]}" if self._last_line else ""
        return f"its process {process_end(code)}{last}"

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERMINATE_GRACE_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _pass_on(stream: IO[bytes], last_line: deque[str]) -> None:
    with stream:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            if line:
                last_line.append(line)
                print(line, file=sys.stderr)  # noqa: T201
