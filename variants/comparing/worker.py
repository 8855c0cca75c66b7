"""One job of a comparison: `python -m decodescope.variants.comparing.worker`, the job on stdin.

Its stdout carries frames only: whatever libraries print goes to stderr.
"""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import Failure, Progress, encode_frame
from decodescope.variants.comparing.jobs import AccuracyDone, AccuracyJob, Job, Result, RunDone
from decodescope.variants.live.loop import first_line
from decodescope.variants.machine.child_process import end_with_parent

Send = Callable[[msgspec.Struct], None]


def main() -> int:
    """Do the job on stdin; returns the process's exit code."""
    end_with_parent()
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)

    def send(message: msgspec.Struct) -> None:
        frames.write(encode_frame(message))
        frames.flush()

    try:
        return _serve(job, send)
    except BrokenPipeError:  # who asked for it is gone
        return 1


def _serve(job: Job, send: Send) -> int:
    try:
        send(_result(job, lambda stage: send(Progress(stage))))
    except DecodescopeError as error:
        send(Failure(message=str(error), exit_code=error.exit_code, fatal=True))
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:  # a device error, or a variant of others: the parent must learn why
        traceback.print_exception(error)
        send(Failure(message=first_line(error), exit_code=1, fatal=True))
        return 1
    return 0


def _result(job: Job, say: Callable[[str], None]) -> Result:
    if isinstance(job, AccuracyJob):
        from decodescope.variants.comparing.accuracy_run import score_variants

        scores = score_variants(job.config, job.variants, job.text, say)
        return AccuracyDone(scores.accuracies, tuple(scores.findings))
    from decodescope.variants.measuring.run import run_variant

    return RunDone(run_variant(job.config, Path(job.trace_path), say))


if __name__ == "__main__":
    try:
        exit_code = main()
    except SystemExit:
        exit_code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing down torch takes a second or more, and the next run waits for this process to end.
    os._exit(exit_code)
