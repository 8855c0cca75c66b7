"""`qwen-block`: the launch that replaces seven or more is right, blocks and launches are counted in
traces, and a block that failed its check gets no ratio."""

import math

import pytest
import torch

from benchmarks.block.attention_block import Subject, random_inputs
from benchmarks.block.report import BlockFigures, BlockTimes
from benchmarks.claims import traced
from benchmarks.claims.qwen_block.block import (
    EAGER,
    FUSED,
    Launches,
    block_launches,
    block_race,
    block_rows,
    launch_rows,
    projection_rows,
)
from benchmarks.claims.qwen_block.projection import OURS, PYTORCH, race_projection
from benchmarks.claims.racing import Racing
from benchmarks.claims.report import ClaimResult, ClaimsReport, Source
from benchmarks.harness import cold_graphs
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.tiles import interpreter_tiles
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.fake_clock import FakeClock
from tests.helpers.families import build

LENGTH = 17


def subject(dtype: torch.dtype = torch.float16) -> Subject:
    model = build("qwen2", dtype)
    parts = fused_model(model)
    tiles = interpreter_tiles(step_shapes(parts, 1, LENGTH + 1))
    return Subject(model, parts, random_inputs(parts, 1, LENGTH), tiles, pdl=False)


def spread(value: float) -> RoundSpread:
    return RoundSpread.of([value, value])


def figures(error: str | None = None, cosine: float = 0.9999998) -> BlockFigures:
    times = BlockTimes(
        eager_ungraphed_ns=spread(300e3),
        eager_graphed_ns=spread(40e3),
        fused_ungraphed_ns=spread(30e3),
        fused_graphed_ns=spread(10e3),
        eager_over_fused_ungraphed=spread(10.0),
        eager_ungraphed_over_fused_graphed=spread(30.0),
        eager_over_fused_graphed=spread(4.0),
    )
    return BlockFigures("fp16", 64, cosine, 0.9999999, 0.999999, error, None if error else times)


LAUNCHES = {EAGER: spread(25.0), FUSED: spread(3.0)}


def test_the_projection_agrees_with_float64_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    racing = Racing(FakeClock(8e3), 1 << 10, 1e12, {}, 2)  # type: ignore[arg-type]
    race = race_projection(racing, subject())
    for name in (PYTORCH, OURS):
        one = race.entrant(name)
        assert one.error is None
        assert one.relative_error is not None
        assert 0 < one.relative_error < 4e-3
        assert one.device_ns is not None
    # Three products, five operators for each of two rotations, two writes.
    assert race.entrant(PYTORCH).launches == 3 + 2 * 5 + 2
    assert race.entrant(PYTORCH).traffic_bytes > race.entrant(OURS).traffic_bytes  # type: ignore[operator]
    rows = list(projection_rows(race, 2e3))
    assert [row.published for row in rows] == [4.5, None]
    assert all(row.measured is not None for row in rows)


def test_a_wrong_projection_gets_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    racing = Racing(FakeClock(8e3), 1 << 10, 1e12, {}, 2)  # type: ignore[arg-type]
    one = subject()
    one.inputs.x[0, 0] = math.nan
    rows = list(projection_rows(race_projection(racing, one), 2e3))
    assert all(row.measured is None and row.error is not None for row in rows)


def test_blocks_are_counted_in_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "STEPS", 2)
    monkeypatch.setattr(traced, "WINDOWS", 1)
    monkeypatch.setattr(traced, "_WARM_STEPS", 0)
    counted = block_launches(subject(), ProfilerSession("cpu"), "cpu")
    # On a CPU the leaf operators count: norm, products, two rotations, two writes, attention.
    assert counted[EAGER].median > 20
    assert set(counted) == {EAGER, FUSED}


def test_the_rows_of_a_block() -> None:
    one = figures()
    race = block_race(one, LAUNCHES)
    rows = list(block_rows(one, race))
    assert [row.published for row in rows] == [4.5, 5.4, None, 0.9999995]
    assert [row.measured.median for row in rows if row.measured] == [10.0, 30.0, 4.0, 0.9999998]
    assert [row.reached for row in rows] == [True, True, None, True]
    assert race.entrant(EAGER).what.endswith("25 launches")
    (*_, cosine) = block_rows(figures(cosine=0.999999), race)
    assert cosine.reached is False


def test_a_wrong_block_gets_no_ratio_and_is_an_error_of_the_command() -> None:
    one = figures("cosine 0.9 to float32: not timed", 0.9)
    race = block_race(one, LAUNCHES)
    ratios = list(block_rows(one, race))[:3]
    assert all(row.measured is None and row.error is not None for row in ratios)
    claim = ClaimResult("qwen-block", "x", Source("x", "x", ""), "", tuple(ratios), (race,))
    report = ClaimsReport(1, None, None, None, 1.0, 1, 1, (claim,), {})
    assert len(report.errors) == 1
    assert "cosine 0.9" in report.errors[0]


def test_launches_of_a_token() -> None:
    found = Launches(LAUNCHES, {"eager": 700.0, "fused": None})
    rows = list(launch_rows(found, 24))
    eager, fused, whole, missing = rows
    assert (eager.published, fused.published) == (240.0, 72.0)
    assert eager.measured == RoundSpread.of([600.0, 600.0])
    assert eager.baseline
    assert eager.reached is None
    assert fused.reached
    assert "24 of 10" in eager.explanation
    assert "24 of 3" in fused.explanation
    assert whole.measured == RoundSpread.of([700.0])
    assert missing.error is not None


@pytest.mark.gpu
def test_the_block_launches_three_kernels_on_a_gpu() -> None:
    from benchmarks.claims.bench import run_claims
    from benchmarks.claims.catalog import chosen_claims

    report = run_claims(chosen_claims(("qwen-block",)), None, lambda stage: None)
    assert report.errors == ()
    rows = {row.what: row for row in report.claims[0].rows}
    assert all(row.error is None for row in rows.values())
    fused = rows["launches a token, attention blocks, fused"].measured
    assert fused is not None
    assert fused.median == 3 * 24
