"""The interval of a ratio of step times: against enumeration, its coverage, and its robustness."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.comparing.bootstrap import SideSpread, ratio_interval, two_sided_t
from decodescope.analyzer.comparing.step_interval import StepTimes, side_spread, times_as_many
from decodescope.analyzer.schema.run_report import Interval

TIMES = st.lists(st.integers(1, 10**9), min_size=2, max_size=9)


def spread_of(traces: StepTimes) -> SideSpread:
    spread = side_spread(traces)
    assert spread is not None
    return spread


def median(values: list[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]


def interval_of(base: StepTimes, other: StepTimes) -> tuple[float, Interval]:
    ratio = median([median(list(t)) for t in other]) / median([median(list(t)) for t in base])
    return ratio, ratio_interval(ratio, spread_of(base), spread_of(other))


def ranges(medians: list[int]) -> float:
    """The wider of the central 80 % and 68 %, as deviations of a normal distribution."""
    logs = np.log(np.sort(medians))
    return max(
        np.ptp(np.quantile(logs, [below, 1 - below], method="nearest")) / (2 * deviations)
        for below, deviations in ((0.1, 1.2816), (0.16, 0.9945))
    )


@pytest.mark.parametrize("times", [[100, 103], [100, 103, 99], [7, 9, 10, 4], [5, 1, 9, 7, 30]])
def test_a_trace_is_like_all_draws_of_its_steps(times: list[int]) -> None:
    medians = [median(list(draw)) for draw in itertools.product(times, repeat=len(times))]
    expected = ranges(medians) ** 2 * len(times) / (len(times) - 1)
    assert spread_of([times]) == SideSpread(pytest.approx(expected, rel=1e-9), len(times))


def test_traces_are_like_all_draws_of_them_and_of_their_steps() -> None:
    traces = [[100, 104, 109], [120, 126, 133], [101, 111, 118]]
    counts: Counter[int] = Counter()
    of_trace = [
        Counter(median(list(draw)) for draw in itertools.product(times, repeat=3))
        for times in traces
    ]
    for chosen in itertools.product(of_trace, repeat=3):
        for drawn in itertools.product(*(medians.items() for medians in chosen)):
            counts[median([ns for ns, _ in drawn])] += math.prod(often for _, often in drawn)
    expected = ranges(list(counts.elements())) ** 2 * 3 / 2
    assert spread_of(traces) == SideSpread(pytest.approx(expected, rel=1e-9), 3)


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


def test_the_interval_over_traces_covers_what_differs_between_runs() -> None:
    generator = np.random.default_rng(7)
    held, alone, comparisons = 0, 0, 200
    for _ in range(comparisons):
        runs = generator.normal(1, 0.03, (2, 4, 1)) * generator.normal(1e6, 1e3, (2, 4, 12))
        base, other = runs.astype(int).tolist()
        _, interval = interval_of(base, other)
        held += interval.low <= 1 <= interval.high
        _, single = interval_of(base[:1], other[:1])
        alone += single.low <= 1 <= single.high
    assert held / comparisons > 0.91
    assert alone / comparisons < 0.5


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


@given(TIMES, TIMES)
@settings(max_examples=25, deadline=None)
def test_exchanged_sides_mirror_and_scale_cancels(base: list[int], other: list[int]) -> None:
    ratio, interval = interval_of([base], [other])
    back, mirrored = interval_of([other], [base])
    assert ratio * back == pytest.approx(1)
    assert interval.low <= ratio <= interval.high
    assert mirrored.low * interval.high == pytest.approx(1)
    assert mirrored.high * interval.low == pytest.approx(1)
    seven = [[ns * 7 for ns in side] for side in (base, other)]
    _, scaled = interval_of([seven[0]], [seven[1]])
    assert scaled.low == pytest.approx(interval.low)


@given(st.lists(TIMES, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_side_against_itself_has_the_ratio_one(traces: list[list[int]]) -> None:
    ratio, interval = interval_of(traces, traces)
    assert ratio == 1
    assert interval.low <= 1 <= interval.high
    assert interval.low * interval.high == pytest.approx(1)


def test_steps_without_noise_have_an_interval_without_width() -> None:
    ratio, interval = interval_of([[100] * 3], [[150] * 4])
    assert (interval.low, ratio, interval.high) == (1.5, 1.5, 1.5)


def test_too_few_steps_have_no_spread() -> None:
    assert side_spread([[5]]) is None
    assert spread_of([[5], [6]]).count == 2


def test_as_many_more_steps_as_said_would_decide() -> None:
    generator = np.random.default_rng(5)
    base, other = (generator.normal(mean, 2e4, 10).astype(int).tolist() for mean in (1e6, 1.012e6))
    ratio, interval = interval_of([base], [other])
    assert interval.low < 1 < interval.high
    spreads = spread_of([base]), spread_of([other])
    times = times_as_many(ratio, *spreads)
    assert times is not None
    for factor, decides in ((times, True), (times * 0.97, False)):
        more = [SideSpread(one.variance / factor, round(one.count * factor)) for one in spreads]
        assert (ratio_interval(ratio, more[0], more[1]).low > 1) == decides


def test_no_number_of_steps_decides_between_equal_times() -> None:
    spread = SideSpread(1e-4, 5)
    assert times_as_many(1.0, spread, spread) is None
    assert times_as_many(1.000001, spread, spread) is None
    assert times_as_many(9.0, spread, spread) == 1.0
    half = two_sided_t(0.95, 8) * math.sqrt(2e-4)
    assert times_as_many(math.exp(half * 1.01), spread, spread) == 1.0
