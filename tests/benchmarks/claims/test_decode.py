"""Claims about whole decode steps: rounds of `compare`, errors against eager's, the GPU's time."""

from io import StringIO

import pytest
from rich.console import Console

from benchmarks.claims.bench import measure_claim
from benchmarks.claims.decode.kernl import KERNL_LLAMA_2, measure_llama_2
from benchmarks.claims.decode.measuring import Decoding, decode_race, tolerance_of
from benchmarks.claims.report import ClaimsReport, Race, Row
from benchmarks.claims.rows import speed_up
from benchmarks.claims.table import claims_table
from benchmarks.claims.watching import ClockWatch
from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants import registry
from decodescope.variants.comparing import command
from decodescope.variants.comparing.job_process import AccuracyJob, RunJob
from decodescope.variants.measuring import request
from decodescope.variants.registry import Variant
from tests.benchmarks.claims.scripted_runs import Scripted, ScriptedRuns, setup_with

EAGER = Scripted((40_000_000, 44_000_000, 42_000_000), busy_ns=8_000_000, error=0.02)
FUSED = Scripted((4_000_000, 4_000_000, 4_200_000), busy_ns=3_900_000, error=0.018)
GRAPH = Scripted((3_500_000,), busy_ns=3_400_000, error=0.018)
SCRIPTS = {"eager": EAGER, "fused": FUSED, "fused+graph": GRAPH}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants that need CUDA pass for runnable: only scripted runs are done."""
    peers = [Variant(name, "for a test", True, print) for name in ("peer", "broken")]
    monkeypatch.setattr(registry, "_installed", lambda: (peers, []))
    for module in (command, request):
        monkeypatch.setattr(module, "choose_device", lambda _: "cuda")


def row(rows: tuple[Row, ...], what: str) -> Row:
    return next(one for one in rows if one.what == what)


def test_wall_time_and_gpu_time_are_apart() -> None:
    runs = ScriptedRuns(SCRIPTS)
    rows = measure_llama_2(setup_with(runs)).rows
    assert runs.ran == ["eager", "fused", "fused+graph"] * 3
    assert all(job.config.dtype == "fp16" for job in runs.jobs)
    wall = row(rows, "fused / eager, wall time")
    assert wall.measured is not None
    assert wall.measured.rounds == pytest.approx((10, 11, 10))
    gpu = row(rows, "fused / eager, GPU time")
    assert gpu.measured is not None
    assert gpu.measured.rounds == pytest.approx([80 / 39] * 3)
    eager = row(rows, "eager")
    assert eager.measured is not None
    assert eager.measured.rounds == pytest.approx((25, 1000 / 44, 1000 / 42))
    assert [one.what for one in rows if one.baseline] == ["eager"]
    assert eager.reached is None
    # 100 MB take 0.1 ms at 1 TB/s; 23 times 100 MB a second of 936 GB/s.
    assert eager.limit == pytest.approx(10_000)
    assert eager.published_share == pytest.approx(23 * 0.1 / 936)
    assert "of which the GPU works 19.0 %" in eager.explanation
    time = row(rows, "GPU time of a step, fused")
    assert time.measured is not None
    assert time.measured.median == 3_900_000


@pytest.mark.parametrize("error", [0.041, None])
def test_a_variant_that_is_wrong_or_not_scored_gets_no_ratio(error: float | None) -> None:
    wrong = Scripted((1,), error=error)
    measured = measure_llama_2(setup_with(ScriptedRuns({**SCRIPTS, "fused": wrong})))
    for one in measured.rows:
        assert (one.error is not None) == ("fused" in one.what and "graph" not in one.what), one
        assert (one.measured is None) == (one.error is not None)
    found = measured.races[0].entrant("fused")
    assert found.error is not None
    assert ("0.041 against fp32 (allowed: 0.04)" if error else "not scored") in found.error
    assert (found.launched_ns, found.device_ns) == (None, None)


def test_without_eagers_accuracy_nothing_has_a_ratio() -> None:
    scripts = {**SCRIPTS, "eager": Scripted(error=None)}
    measured = measure_llama_2(setup_with(ScriptedRuns(scripts)))
    assert all(one.error is not None and one.measured is None for one in measured.rows)


@pytest.mark.parametrize(
    ("variant", "dtype", "times"),
    [
        ("eager", "bf16", 2),
        ("fused+graph", "fp16", 2),
        ("fused+graph+int8", "bf16", 8),
        ("fused+graph+fp8_e4m3", "bf16", 16),
        ("fused+graph+w8a8", "bf16", 16),
        ("fused+graph+fp8_e5m2_cast+head16", "bf16", 32),
        ("fused+graph+fp8_e5m2", "fp16", 256),
    ],
)
def test_the_tolerance_is_eagers_error_by_the_digits_that_a_format_loses(
    variant: str, dtype: str, times: float
) -> None:
    assert tolerance_of(variant, dtype, 1e-3) == pytest.approx(times * 1e-3)
    assert tolerance_of(variant, dtype, 0.9) == 1.0


def raced(scripts: dict[str, Scripted], peers: tuple[str, ...]) -> tuple[Race, ScriptedRuns]:
    runs = ScriptedRuns(scripts)
    what = Decoding("llama-3.2-1b@random", ("eager", "fused+graph"), 2, peers)
    return decode_race(setup_with(runs), what).race, runs


def test_a_peer_that_fails_is_left_out_before_ours_have_run() -> None:
    broken = Scripted(fails=MissingRequirement("no such kernel"))
    race, runs = raced({**SCRIPTS, "peer": Scripted(), "broken": broken}, ("peer", "broken"))
    assert runs.ran == ["peer", "broken", *["peer", "eager", "fused+graph"] * 2]
    scored, *rest = runs.jobs
    assert isinstance(scored, AccuracyJob)
    assert scored.variants == ("eager", "fused+graph", "peer", "broken")
    assert all(isinstance(job, RunJob) for job in rest)
    assert race.entrant("broken").error == ("not available: variant broken failed: no such kernel")
    assert race.entrant("peer").error is None
    assert [one.name for one in race.entrants] == ["eager", "fused+graph", "peer", "broken"]


def test_ours_must_run() -> None:
    broken = Scripted(fails=MissingRequirement("no such kernel"))
    with pytest.raises(MissingRequirement, match=r"fused\+graph failed"):
        raced({**SCRIPTS, "fused+graph": broken}, ())


def test_without_a_process_that_scores_nothing_is_run() -> None:
    class Unscored(ScriptedRuns):
        def __call__(self, job: object, say: object) -> object:
            if isinstance(job, AccuracyJob):
                raise MissingRequirement("out of GPU memory")
            return super().__call__(job, say)  # type: ignore[arg-type]

    runs = Unscored(SCRIPTS)
    with pytest.raises(MissingRequirement, match="out of GPU memory"):
        decode_race(setup_with(runs), Decoding("llama-3.2-1b@random", ("eager", "fused"), 2))
    assert runs.ran == []


@pytest.mark.parametrize("jobs", [0, 1, 5])
def test_an_interruption_ends_the_measurement(jobs: int) -> None:
    class Interrupted(ScriptedRuns):
        def __call__(self, job: object, say: object) -> object:
            if len(self.jobs) == jobs:
                raise KeyboardInterrupt
            return super().__call__(job, say)  # type: ignore[arg-type]

    what = Decoding("llama-3.2-1b@random", ("eager", "fused+graph"), 3)
    with pytest.raises(KeyboardInterrupt):
        decode_race(setup_with(Interrupted(SCRIPTS)), what)


def test_a_steps_race_shows_steps() -> None:
    result = measure_claim(
        KERNL_LLAMA_2, setup_with(ScriptedRuns(SCRIPTS)), ClockWatch(None), "NVIDIA H200"
    )
    assert result.error is None
    assert "do not compare" in result.comparable
    report = ClaimsReport(1, 1e12, None, None, 1e3, 1 << 20, 3, (result,), _NO_ENVIRONMENT)
    shown = StringIO()
    Console(width=200, file=shown).print(claims_table(report))
    text = shown.getvalue()
    for words in ("tokens/s", "GPU works µs", "x10.0 (x10.0 to x11.0)", "286"):
        assert words in text, words


def test_ratios_of_steps_are_of_the_same_round() -> None:
    race, _ = raced(SCRIPTS, ())
    found = speed_up("x", race, "eager", "fused+graph", None, launched=True)
    assert found.measured is not None
    assert found.measured.rounds == pytest.approx((40 / 3.5, 44 / 3.5))
    assert found.explanation.startswith("a step: eager")


_NO_ENVIRONMENT = dict.fromkeys(
    ("gpu", "driver", "cuda", "torch", "triton", "transformers", "decodescope", "commit")
)
