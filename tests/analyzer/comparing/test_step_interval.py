"""The interval of a ratio of step times: against enumeration, its coverage, and its robustness."""

import itertools
import math
import secrets
from statistics import NormalDist, fmean, median_low, variance

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.comparing.bootstrap import two_sided_t
from decodescope.analyzer.comparing.step_interval import StepRatio, StepTimes, outlier, step_ratio
from decodescope.analyzer.schema.run_report import Interval

TIMES = st.lists(st.integers(1, 10**9), min_size=2, max_size=9)
SIDES = st.lists(TIMES, min_size=1, max_size=4)


def ratio_of(base: StepTimes, other: StepTimes) -> StepRatio:
    times = [median_low(median_low(trace) for trace in side) for side in (base, other)]
    found = step_ratio(times[1] / times[0], base, other)
    assert found is not None
    return found


def interval_of(base: StepTimes, other: StepTimes) -> tuple[float, Interval]:
    found = ratio_of(base, other)
    return found.ratio, found.interval()


def ranges(medians: list[int]) -> float:
    """The wider of the central 80 % and 68 %, as deviations of a normal distribution."""
    logs = np.log(np.sort(medians))
    return max(
        np.ptp(np.quantile(logs, [below, 1 - below], method="nearest"))
        / (2 * NormalDist().inv_cdf(1 - below))
        for below in (0.1, 0.16)
    )


@pytest.mark.parametrize("times", [[100, 103], [100, 103, 99], [7, 9, 10, 4], [5, 1, 9, 7, 30]])
def test_a_single_trace_is_like_all_draws_of_its_steps(times: list[int]) -> None:
    medians = [median_low(draw) for draw in itertools.product(times, repeat=len(times))]
    half = two_sided_t(0.95, len(times) - 1) * ranges(medians)
    half *= math.sqrt(len(times) / (len(times) - 1))
    ratio, interval = interval_of([[50] * 1000], [times])
    assert math.log(interval.high / ratio) == pytest.approx(half, rel=1e-4)
    assert math.log(ratio / interval.low) == pytest.approx(half, rel=1e-4)


def test_traces_have_the_interval_that_welch_published() -> None:
    """The steps of a trace count by their median only."""
    base = [[100, 104, 109], [120, 126, 133], [101, 111, 1180], [90, 112, 113]]
    other = [[207, 100, 208], [222, 221, 220], [9, 213, 214]]
    means, parts = [], []
    for side in (base, other):
        logs = [math.log(median_low(trace)) for trace in side]
        means.append(fmean(logs))
        parts.append((variance(logs) / len(logs), len(logs) - 1))
    total = sum(part for part, _ in parts)
    degrees = total**2 / sum(part**2 / freedom for part, freedom in parts)
    half = two_sided_t(0.95, int(degrees)) * math.sqrt(total)
    found = ratio_of(base, other)
    assert found.ratio == 213 / 111
    assert found.center == pytest.approx(math.exp(means[1] - means[0]))
    assert found.interval().low == pytest.approx(found.center * math.exp(-half))
    assert found.interval().high == pytest.approx(found.center * math.exp(half))
    assert found.counts == (4, 3)


def test_a_single_trace_varies_between_runs_as_the_other_side_does() -> None:
    base = [[100], [103], [98], [102], [99]]
    logs = [math.log(times[0]) for times in base]
    half = two_sided_t(0.95, 4) * math.sqrt(variance(logs) * (1 / 5 + 1))
    interval = ratio_of(base, [[120]]).interval()
    assert math.log(interval.high / interval.low) == pytest.approx(2 * half)
    assert interval == ratio_of(base, [[120] * 9]).interval()
    noisy = ratio_of(base, [[100, 120, 140]]).interval()
    assert noisy.high / noisy.low > interval.high / interval.low
    back = ratio_of([[120]], base).interval()
    assert (back.low, back.high) == pytest.approx((1 / interval.high, 1 / interval.low))


def test_medians_and_means_must_agree() -> None:
    """Most runs of both sides are equal; a third of the runs of one side is far slower."""
    base, other = [[100]] * 20, [[100]] * 13 + [[150]] * 7
    found = ratio_of(base, other)
    assert (found.ratio, found.interval().low) == (1.0, 1.0)
    assert found.center > 1.1
    assert found.more() is None


@pytest.mark.parametrize("steps", [2, 5, 20])
@pytest.mark.parametrize("slow", [0.0, 0.1])
def test_the_interval_has_its_nominal_coverage(steps: int, slow: float) -> None:
    """With and without one step in ten that takes ten times as long."""
    generator = np.random.default_rng(steps)
    held, comparisons = 0, 200
    for _ in range(comparisons):
        noise = generator.normal(1, 0.01, (2, steps))
        noise *= np.where(generator.random((2, steps)) < slow, 10, 1)
        base, other = (noise * [[1e6], [1.5e6]]).astype(int).tolist()
        _, interval = interval_of([base], [other])
        held += interval.low <= 1.5 <= interval.high
    assert held / comparisons > 0.91


@pytest.mark.parametrize(("base_runs", "other_runs"), [(2, 2), (4, 4), (9, 3), (6, 1)])
def test_the_interval_over_traces_covers_what_differs_between_runs(
    base_runs: int, other_runs: int
) -> None:
    seed = secrets.randbits(32)
    generator = np.random.default_rng(seed)
    held, alone, comparisons = 0, 0, 200
    for _ in range(comparisons):
        base, other = (
            (generator.normal(1, 0.03, (runs, 1)) * generator.normal(1e6, 1e3, (runs, 12)))
            .astype(int)
            .tolist()
            for runs in (base_runs, other_runs)
        )
        _, interval = interval_of(base, other)
        held += interval.low <= 1 <= interval.high
        _, single = interval_of(base[:1], other[:1])
        alone += single.low <= 1 <= single.high
    assert held / comparisons > 0.88, seed
    assert alone / comparisons < 0.5, seed


@pytest.mark.parametrize("slow_side", [0, 1])
@pytest.mark.parametrize("factor", [1.0, 1.03])
@pytest.mark.parametrize("far", [1.5, 0.6])
def test_one_run_that_is_far_off_does_not_decide(slow_side: int, factor: float, far: float) -> None:
    noise = np.random.default_rng(3).normal(1, 0.005, (2, 5, 1))
    noise[slow_side, 2] *= far
    sides = (noise * [[[1e6]], [[1e6 * factor]]]).astype(int).tolist()
    assert [outlier(side) for side in sides] == [None, 2][:: 1 - 2 * (1 - slow_side)]
    ratio, interval = interval_of(*sides)
    assert ratio == pytest.approx(factor, rel=0.01)
    assert (interval.low > 1) == (factor > 1)
    assert interval.high < 1.05
    without = [[trace for trace in side if trace != sides[slow_side][2]] for side in sides]
    found = ratio_of(*without)
    assert ratio_of(*sides).center == pytest.approx(found.center)
    assert ratio_of(*sides).base == found.base
    assert ratio_of(*sides).other == found.other


def test_noise_leaves_nothing_out() -> None:
    """Neither two clocks, nor what is near, nor two runs, nor one of three."""
    assert outlier([[100], [100], [100], [100], [109]]) is None
    assert outlier([[100], [103], [98], [95], [120]]) is None
    assert outlier([[100], [101], [99], [150], [150]]) is None
    assert outlier([[100], [100], [150]]) is None
    assert outlier([[100], [101], [99], [150]]) == 3


@pytest.mark.parametrize("steps", [4, 5, 8, 20])
@pytest.mark.parametrize("slow_side", [0, 1])
def test_one_step_ten_times_as_slow_does_not_decide(steps: int, slow_side: int) -> None:
    noise = np.random.default_rng(steps).normal(1, 0.005, (2, steps))
    times = (noise * [[1e6], [1.5e6]]).astype(int)
    _, before = interval_of([times[0].tolist()], [times[1].tolist()])
    times[slow_side, steps // 2] *= 10
    ratio, interval = interval_of([times[0].tolist()], [times[1].tolist()])
    assert ratio == pytest.approx(1.5, rel=0.02)
    assert 1 < interval.low < interval.high < 2
    assert interval.high / interval.low < (before.high / before.low) ** 2.5


@given(SIDES, SIDES)
@settings(max_examples=25, deadline=None)
def test_exchanged_sides_mirror_and_scale_cancels(base: StepTimes, other: StepTimes) -> None:
    ratio, interval = interval_of(base, other)
    back, mirrored = interval_of(other, base)
    assert ratio * back == pytest.approx(1)
    assert interval.low <= ratio <= interval.high
    assert mirrored.low * interval.high == pytest.approx(1)
    assert mirrored.high * interval.low == pytest.approx(1)
    sevens = [[[ns * 7 for ns in trace] for trace in side] for side in (base, other)]
    _, scaled = interval_of(*sevens)
    assert scaled.low == pytest.approx(interval.low)


@given(SIDES)
@settings(max_examples=25, deadline=None)
def test_a_side_against_itself_has_the_ratio_one(traces: StepTimes) -> None:
    ratio, interval = interval_of(traces, traces)
    assert ratio == 1
    assert interval.low <= 1 <= interval.high
    assert interval.low * interval.high == pytest.approx(1)


@pytest.mark.parametrize("runs", [(1, 1), (3, 4), (1, 5)])
def test_steps_without_noise_have_an_interval_without_width(runs: tuple[int, int]) -> None:
    ratio, interval = interval_of([[100] * 3] * runs[0], [[150] * 4] * runs[1])
    assert (interval.low, ratio, interval.high) == (1.5, 1.5, 1.5)


def test_too_few_steps_have_no_spread() -> None:
    assert step_ratio(1.2, [[5]], [[6, 6]]) is None
    assert step_ratio(1.2, [[5, 5]], [[6]]) is None
    assert step_ratio(1.2, [[5]], [[6], [6]]) is not None


@pytest.mark.parametrize("traces", [True, False])
def test_as_many_more_as_said_would_decide(traces: bool) -> None:
    generator = np.random.default_rng(5)
    sides = [generator.normal(mean, 2e4, 10).astype(int).tolist() for mean in (1e6, 1.012e6)]
    base, other = ([[ns] for ns in side] if traces else [side] for side in sides)
    found = ratio_of(base, other)
    assert found.interval().low < 1 < found.interval().high
    more = found.more()
    assert more is not None
    for count, decides in ((10 + more, True), (10 + more // 2, False)):
        spreads = [
            type(side)(side.variance * 10 / count, count) for side in (found.base, found.other)
        ]
        again = StepRatio(found.ratio, found.center, *spreads, (count, count))
        assert (again.interval().low > 1) == decides


def test_one_trace_against_many_needs_few_more() -> None:
    generator = np.random.default_rng(8)
    base = [[round(1e6 * noise)] for noise in generator.normal(1, 0.01, 20)]
    found = ratio_of(base, [[1_018_000]])
    more = found.more()
    assert more is not None
    logs = [math.log(ns) for (ns,) in base]
    half = two_sided_t(0.95, 19) * math.sqrt(variance(logs) * (1 / (20 + more) + 1 / (1 + more)))
    assert math.log(found.center) * 0.7 < half < math.log(found.center) * 1.1
    assert more <= 4


def test_no_number_of_steps_decides_between_equal_times() -> None:
    side = [[1000, 1010, 990, 1005, 995]]
    assert ratio_of(side, side).more() is None
    assert ratio_of(side, [[10_000_001 * ns for ns in side[0]]]).more(1e7) is None
    assert ratio_of(side, [[9 * ns for ns in side[0]]]).more(8.9) is not None
