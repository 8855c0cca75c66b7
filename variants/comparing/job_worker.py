"""Does one job of a comparison: `python -m decodescope.variants.comparing.job_worker`.

stdin is the job. stdout carries only frames; what libraries print goes to stderr.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from decodescope.analyzer.protocol.messages import Progress, encode_frame
from decodescope.variants.comparing.job_process import AccuracyJob, Job, Result, RunDone
from decodescope.variants.machine.child_process import end_with_parent, exit_now, failure_of


def main() -> int:
    end_with_parent()
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)

    def send(message: msgspec.Struct) -> None:
        frames.write(encode_frame(message))
        frames.flush()

    try:
        send(do_job(job, lambda stage: send(Progress(stage))))
        return 0
    except BrokenPipeError:  # the parent is gone
        return 1
    except Exception as error:  # ours, a device's, or a third-party variant's
        failure = failure_of(error)
        with suppress(BrokenPipeError):
            send(failure)
        return failure.exit_code


def do_job(job: Job, say: Callable[[str], None]) -> Result:
    if isinstance(job, AccuracyJob):
        from decodescope.variants.comparing.accuracy import score_variants

        return score_variants(job.config, job.variants, job.text, say)
    from decodescope.variants.measuring.run import run_variant

    path = None if job.trace_path is None else Path(job.trace_path)
    return RunDone(run_variant(job.config, path, say))


if __name__ == "__main__":
    try:
        exit_now(main())
    except SystemExit:
        exit_now(1)
