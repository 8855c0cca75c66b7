"""Does one job of a comparison: `python -m decodescope.variants.comparing.worker`, job on stdin.

stdout carries only frames; what libraries print goes to stderr.
"""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import DecodescopeError, first_line
from decodescope.analyzer.protocol import Failure, Progress, encode_frame
from decodescope.variants.comparing.jobs import AccuracyDone, AccuracyJob, Job, Result, RunDone
from decodescope.variants.machine.child_process import end_with_parent, exit_now

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
    except BrokenPipeError:  # the parent is gone
        return 1


def _serve(job: Job, send: Send) -> int:
    try:
        send(_result(job, lambda stage: send(Progress(stage))))
    except DecodescopeError as error:
        send(Failure(message=str(error), exit_code=error.exit_code, fatal=True))
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:  # a device error, or a third-party variant
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
    exit_now(exit_code)
