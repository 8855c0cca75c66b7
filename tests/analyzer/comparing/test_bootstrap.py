"""Intervals of few measurements: against enumeration, closed forms, and how often they hold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.comparing.bootstrap import (
    SideSpread,
    mean_interval,
    paired_ratio,
    ratio_interval,
    two_sided_t,
)
from decodescope.analyzer.schema.run_report import Interval

RATES = st.lists(st.floats(10.0, 1000.0), min_size=3, max_size=12)


@pytest.mark.parametrize(
    ("degrees", "published"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (9, 2.262),
        (10, 2.228),
        (29, 2.045),
        (30, 2.042),
        (120, 1.980),
    ],
)
def test_quantiles_are_the_published_ones(degrees: int, published: float) -> None:
    assert two_sided_t(0.95, degrees) == pytest.approx(published, abs=5e-4)


def test_quantiles_of_other_confidences() -> None:
    assert two_sided_t(0.5, 1) == pytest.approx(1.0)
    assert two_sided_t(0.99, 4) == pytest.approx(4.604, abs=5e-4)
    assert two_sided_t(0.95, 10**6) == pytest.approx(1.96, abs=3e-3)


def test_three_rounds_are_like_all_27_draws_of_them() -> None:
    base, other = [100.0, 103.0, 99.0], [151.0, 149.0, 155.0]
    draws = itertools.product(range(3), repeat=3)
    logs = [math.log(sum(other[i] for i in d) / sum(base[i] for i in d)) for d in draws]
    half = two_sided_t(0.95, 2) * math.sqrt(np.var(logs) * 3 / 2)
    ratio = sum(other) / sum(base)
    found = _present(paired_ratio(base, other))
    assert math.log(found.high / ratio) == pytest.approx(half, rel=0.03)
    assert math.log(ratio / found.low) == pytest.approx(half, rel=0.03)


@pytest.mark.parametrize("size", [3, 5, 40, 2500])
def test_small_noise_has_the_t_interval_of_the_mean(size: int) -> None:
    values = np.random.default_rng(size).normal(100, 0.5, size)
    half = two_sided_t(0.95, size - 1) * values.std(ddof=1) / math.sqrt(size)
    found = _present(mean_interval(values.tolist()))
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.03)
    assert found.confidence == 0.95


def test_welch_decides_where_one_side_is_noisier() -> None:
    generator = np.random.default_rng(3)
    quiet, noisy = generator.normal(100, 0.1, 30), generator.normal(100, 3, 4)
    parts = [side.var(ddof=1) / len(side) / side.mean() ** 2 for side in (quiet, noisy)]
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / 29 + parts[1] ** 2 / 3)
    half = two_sided_t(0.95, int(degrees)) * math.sqrt(sum(parts))
    sides = SideSpread(parts[0], 30), SideSpread(parts[1], 4)
    interval = ratio_interval(noisy.mean() / quiet.mean(), *sides)
    assert int(degrees) == 3
    assert math.log(interval.high / interval.low) / 2 == pytest.approx(half, rel=0.03)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_intervals_of_few_rounds_have_their_nominal_coverage(size: int) -> None:
    generator = np.random.default_rng(size)
    comparisons, held = 300, 0
    for _ in range(comparisons):
        shared = generator.normal(0, 0.02, size)
        base = 100 * (1 + shared + generator.normal(0, 0.005, size))
        other = 110 * (1 + shared + generator.normal(0, 0.005, size))
        found = _present(paired_ratio(base.tolist(), other.tolist()))
        held += found.low <= 1.1 <= found.high
    assert held / comparisons > 0.91


def test_noise_that_both_sides_share_cancels_in_pairs_only() -> None:
    shared = [90.0, 100.0, 110.0, 95.0]
    other = [
        rate * 1.02 * (1 + nudge) for rate, nudge in zip(shared, [0, 1e-3, 0, -1e-3], strict=True)
    ]
    paired = _present(paired_ratio(shared, other))
    sides = (SideSpread(float(np.log(side).var(ddof=1)) / 4, 4) for side in (shared, other))
    unpaired = ratio_interval(float(np.mean(other) / np.mean(shared)), *sides)
    assert paired.low > 1.015
    assert unpaired.low < 1 < unpaired.high


@given(rates=RATES, scale=st.floats(0.1, 10.0), data=st.data())
@settings(max_examples=25, deadline=None)
def test_intervals_contain_the_estimate_scale_and_invert(
    rates: list[float], scale: float, data: st.DataObject
) -> None:
    size = len(rates)
    others = data.draw(st.lists(st.floats(10.0, 1000.0), min_size=size, max_size=size))
    interval = _present(paired_ratio(rates, others))
    assert interval.low <= sum(others) / sum(rates) * (1 + 1e-12)
    assert interval.high >= sum(others) / sum(rates) * (1 - 1e-12)
    scaled = _present(paired_ratio(rates, [rate * scale for rate in others]))
    assert scaled.low == pytest.approx(interval.low * scale)
    turned = _present(paired_ratio(others, rates))
    assert turned.high == pytest.approx(1 / interval.low)
    assert paired_ratio(rates, others) == interval


def test_rounds_without_noise_have_intervals_without_width() -> None:
    found = _present(paired_ratio([100.0] * 3, [120.0] * 3))
    assert (found.low, found.high) == pytest.approx((1.2, 1.2))
    same = _present(paired_ratio([7.3, 8.1, 9.9], [7.3, 8.1, 9.9]))
    assert same.low == same.high == 1.0


@pytest.mark.parametrize("size", [0, 1, 2])
def test_fewer_than_three_rounds_have_no_interval(size: int) -> None:
    few = [100.0] * size
    assert mean_interval(few) is None
    assert paired_ratio(few, few) is None


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        paired_ratio([1.0, 2.0, 3.0], [1.0, 2.0])


def test_extreme_noise_does_not_overflow() -> None:
    found = _present(paired_ratio([1e-200, 1.0, 1e200], [1e200, 1.0, 1e-200]))
    assert 0 < found.low < found.high < math.inf


def _present(interval: Interval | None) -> Interval:
    assert interval is not None
    return interval
