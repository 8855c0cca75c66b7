"""Does one job of a comparison: `python -m decodescope.variants.comparing.job_worker`.

stdin is the job. stdout carries only frames; what libraries print goes to stderr. A job for several
ranks makes this process their launcher: rank 0 has its stdin and stdout.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from decodescope.analyzer.protocol.messages import Progress, encode_frame
from decodescope.variants.comparing.job_process import AccuracyJob, Job, Result, RunDone
from decodescope.variants.machine.child_process import end_with_parent, exit_now, failure_of
from decodescope.variants.parallel.launcher import launch
from decodescope.variants.parallel.place import is_rank
from decodescope.variants.parallel.ranks import ALONE, Ranks


def main() -> int:
    if is_rank(os.environ):
        work = _work_as_rank
    else:
        end_with_parent(1)
        data = sys.stdin.buffer.read()
        job = msgspec.json.decode(data, type=Job)
        if job.config.tp > 1:
            _give_back(data)
            return launch(job.config.tp, "decodescope.variants.comparing.job_worker", ())
        work = partial(do_job, job)
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: msgspec.Struct) -> None:
        frames.write(encode_frame(message))
        frames.flush()

    try:
        if (result := work(lambda stage: send(Progress(stage)))) is not None:
            send(result)
        return 0
    except BrokenPipeError:  # the parent is gone
        return 1
    except Exception as error:  # ours, a device's, or a third-party variant's
        failure = failure_of(error)
        with suppress(BrokenPipeError):
            send(failure)
        return failure.exit_code


def _give_back(data: bytes) -> None:
    """Make `data` the standard input again, for rank 0."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def _work_as_rank(say: Callable[[str], None]) -> Result | None:
    """The result on rank 0."""
    from decodescope.variants.parallel.group import group_of_this_process

    with group_of_this_process() as group:
        job = group.shared(lambda: msgspec.json.decode(sys.stdin.buffer.read(), type=Job), Job)
        return do_job(job, say, group.join(job.config))


def do_job(job: Job, say: Callable[[str], None], ranks: Ranks = ALONE) -> Result | None:
    """The result, of several `ranks` on rank 0."""
    if isinstance(job, AccuracyJob):
        from decodescope.variants.comparing.accuracy import score_variants

        scored = score_variants(job.config, job.variants, job.text, say, ranks)
        return None if ranks.rank else scored
    from decodescope.variants.measuring.run import run_variant

    path = None if job.trace_path is None else Path(job.trace_path)
    report = run_variant(job.config, path, say, ranks)
    return None if report is None else RunDone(report)


if __name__ == "__main__":
    try:
        exit_now(main())
    except SystemExit:
        exit_now(1)
