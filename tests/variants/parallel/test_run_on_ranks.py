"""Two ranks decode what one does, and report it together."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze_ranks
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.views.run_table import run_table
from decodescope.variants.comparing import job_worker
from decodescope.variants.comparing.job_process import AccuracyDone, AccuracyJob, RunDone, RunJob
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.parallel.group import group_of_this_process
from tests.helpers.rank_groups import PATIENCE_S, started_ranks
from tests.helpers.rich_report import text_of

ALONE = WorkerConfig(
    batch=1, tokens=14, variant="eager", device="cpu", model="tiny", context=8, dtype="fp32"
)
TOGETHER = msgspec.structs.replace(ALONE, tp=2)


def _alone() -> RunReport:
    report = run_variant(ALONE, None, lambda stage: None)
    assert report is not None
    return report


@pytest.mark.slow
def test_the_command_decodes_on_two_ranks(tmp_path: Path) -> None:
    """The whole way: the command, the launcher, and ranks that are commands themselves."""
    options = "run --model tiny --device cpu --dtype fp32 --context 8 --tokens 14 --json --tp 2"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "decodescope",
            *options.split(),
            "--trace",
            str(tmp_path / "window.json.gz"),
        ],
        capture_output=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    report, alone = msgspec.json.decode(done.stdout, type=RunReport), _alone()
    assert report.output_token_ids == alone.output_token_ids
    assert (report.tp, alone.tp) == (2, 1)
    # Heads, MLP and vocabulary are split; the norms are on both.
    assert alone.bytes_per_step / 2 < report.bytes_per_step < 0.51 * alone.bytes_per_step
    texts = [text_of(run_table(each)) for each in (report, alone)]
    assert ["a step, each rank" in text for text in texts] == [True, False]
    assert report.communication is not None
    assert [rank.rank for rank in report.communication.ranks] == [0, 1]
    paths = [tmp_path / f"window.rank{rank}.json.gz" for rank in range(2)]
    assert sorted(tmp_path.iterdir()) == paths
    ranks = analyze_ranks(paths).report.ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    captures = [rank.report.capture for rank in ranks]
    assert all(capture is not None and capture.tp == 2 for capture in captures)


def _do_jobs(folder: Path) -> None:
    """The jobs of a comparison; rank 0 leaves the answers in the folder."""
    run = RunJob(TOGETHER, str(folder / "run.json.gz"))
    score = AccuracyJob(TOGETHER, ("eager",), "Words that are scored, and some more. " * 4)
    with group_of_this_process() as group:
        ranks = group.join(TOGETHER)
        for name, job in (("run", run), ("score", score)):
            result = job_worker.do_job(job, lambda stage: None, ranks)
            assert (result is None) == bool(ranks.rank)
            if result is not None:
                (folder / name).write_bytes(msgspec.json.encode(result))


def test_the_jobs_of_a_comparison_run_on_ranks(tmp_path: Path) -> None:
    with started_ranks(2, tmp_path, _do_jobs, tmp_path) as ranks:
        ended = [rank.ended() for rank in ranks]
    assert [code for code, _ in ended] == [0, 0], ended
    run = msgspec.json.decode((tmp_path / "run").read_bytes(), type=RunDone)
    assert run.report.output_token_ids == _alone().output_token_ids
    assert {f"run.rank{rank}.json.gz" for rank in range(2)} <= {
        path.name for path in tmp_path.iterdir()
    }
    score = msgspec.json.decode((tmp_path / "score").read_bytes(), type=AccuracyDone)
    assert score.accuracies["eager"].top1_agreement == 1.0
