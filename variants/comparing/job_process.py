"""Runs one job of a comparison in its own process, and always ends that process.

The job is JSON on the child's stdin. The child answers on stdout with frames of
`analyzer.protocol.messages`: any number of `Progress`, then its result or a `Failure`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import msgspec
from msgspec import Struct

from decodescope.analyzer.errors import InputError, InternalError, MissingRequirement, process_end
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.protocol.messages import Failure, FrameDecoder, Progress, WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy, RunReport

ACCURACY_MISSING = "accuracy_missing"
WORKER = (sys.executable, "-P", "-m", "decodescope.variants.comparing.job_worker")

_ERRORS = {kind.exit_code: kind for kind in (InputError, InternalError)}
_PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
_READ_BYTES = 1 << 16
_TERMINATE_GRACE_S = 1.0
_DRAIN_S = 1.0
_INTERRUPTION_S = 0.2


class RunJob(Struct, frozen=True, tag="run"):
    """Measure `config.variant` once; the profiled window is written to `trace_path`, if any."""

    config: WorkerConfig
    trace_path: str | None


class AccuracyJob(Struct, frozen=True, tag="accuracy"):
    """Score `variants` on `text`; `config.variant` is ignored."""

    config: WorkerConfig
    variants: tuple[str, ...]
    text: str | None


class RunDone(Struct, frozen=True, tag="run_done"):
    report: RunReport


class AccuracyDone(Struct, frozen=True, tag="accuracy_done"):
    """Accuracy by variant; `findings` says why a variant has none."""

    accuracies: dict[str, Accuracy]
    findings: tuple[Finding, ...]


Job = RunJob | AccuracyJob
Result = RunDone | AccuracyDone
JobMessage = Progress | Failure | RunDone | AccuracyDone


def run_job(job: Job, say: Callable[[str], None], argv: tuple[str, ...] = WORKER) -> Result:
    """Do `job` in a new process and return its result; `say` is called with its stages.

    What the process writes to stderr appears on ours immediately. It is the leader of its own
    process group, so Ctrl-C reaches only this process; the group is always ended on return.

    Raises:
        InputError: the child rejected the job as bad input.
        InternalError: the child failed in a way that nobody foresaw.
        MissingRequirement: the child lacks a requirement, crashed or was killed.
        KeyboardInterrupt: also if the child ended first of those that a signal was sent to.
    """
    with ExitStack() as stack:
        try:
            process = stack.enter_context(running(argv, **_PIPES, start_new_session=True))
        except OSError as error:
            raise MissingRequirement(f"its process cannot be started: {error}") from error
        last_line: deque[str] = deque(maxlen=1)
        errors = threading.Thread(target=_pass_on, args=(process.stderr, last_line), daemon=True)
        errors.start()
        stack.callback(errors.join, _DRAIN_S)
        stack.enter_context(_ending_group(process))
        result = _result(process, job, say)
        if result is None:
            code = process.wait()
            errors.join(_DRAIN_S)
            # What ends a service or a container signals every process of it, this one perhaps last.
            time.sleep(_INTERRUPTION_S)
            last = f"; its last output: {last_line[0]}" if last_line else ""
            raise MissingRequirement(f"its process {process_end(code)}{last}")
        return result


@contextmanager
def _ending_group(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the whole process group after a block; a child with a result may exit first."""
    try:
        yield
        _wait(process)
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            _wait(process)
        _signal(process, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()


def _wait(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_GRACE_S)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _result(
    process: subprocess.Popen[bytes], job: Job, say: Callable[[str], None]
) -> Result | None:
    """Write `job`, then read frames up to the result; None if there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    # A child that died at once is reported by its exit code.
    with suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
    decoder = FrameDecoder(JobMessage)
    while data := os.read(process.stdout.fileno(), _READ_BYTES):
        try:
            messages = decoder.feed(data)
        except InputError as error:
            raise MissingRequirement(f"its answer cannot be read ({error})") from error
        for message in messages:
            if isinstance(message, Progress):
                say(message.stage)
            elif isinstance(message, Failure):
                raise _ERRORS.get(message.exit_code, MissingRequirement)(message.message)
            elif isinstance(message, RunDone | AccuracyDone):
                return message
    return None


def _pass_on(stream: IO[bytes], last_line: deque[str]) -> None:
    with stream:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            if line:
                last_line.append(line)
                print(line, file=sys.stderr)  # noqa: T201
