"""Rates and quantiles between two moments, against an independent calculation."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.attach.servers.figures import figures, histogram_quantile
from decodescope.attach.servers.metrics import Histogram, ServerMetrics

BOUNDS = (0.01, 0.025, 0.05, 0.1, math.inf)


def quantile_of_observations(q: Fraction, bounds: tuple[float, ...], numbers: list[int]) -> float:
    """The quantile of `numbers` observations a bucket, by walking through the buckets."""
    left = q * sum(numbers)
    lower = Fraction(0)
    for bound, number in zip(bounds[:-1], numbers[:-1], strict=True):
        upper = Fraction(bound)
        if number and left <= number:
            return float(lower + (upper - lower) * left / number)
        left -= number
        lower = upper
    return bounds[-2]


@given(
    st.lists(st.integers(0, 10_000), min_size=5, max_size=5).filter(any),
    st.fractions(Fraction(1, 1000), 1),
)
def test_a_quantile_is_that_of_evenly_spread_observations(numbers: list[int], q: Fraction) -> None:
    counts = tuple(float(sum(numbers[: end + 1])) for end in range(len(numbers)))
    expected = quantile_of_observations(Fraction(float(q)), BOUNDS, numbers)
    assert histogram_quantile(float(q), Histogram(BOUNDS, counts)) == pytest.approx(expected)


@given(st.lists(st.integers(0, 99), min_size=5, max_size=5).filter(any))
def test_quantiles_ascend_and_stay_within_the_buckets(numbers: list[int]) -> None:
    counts = tuple(float(sum(numbers[: end + 1])) for end in range(len(numbers)))
    found = [histogram_quantile(q / 100, Histogram(BOUNDS, counts)) for q in range(1, 101)]
    quantiles = [quantile for quantile in found if quantile is not None]
    assert len(quantiles) == 100
    assert quantiles == sorted(quantiles)
    assert quantiles[0] >= 0
    assert quantiles[-1] <= 0.1


def test_quantiles_as_promql_has_them() -> None:
    # histogram_quantile(0.5) of 10 observations up to 1, 30 up to 2, 40 in all: rank 20 is half of
    # the second bucket.
    histogram = Histogram((1.0, 2.0, math.inf), (10.0, 30.0, 40.0))
    assert histogram_quantile(0.5, histogram) == 1.5
    assert histogram_quantile(0.25, histogram) == 1.0
    assert histogram_quantile(0.125, histogram) == 0.5
    assert histogram_quantile(0.99, histogram) == 2.0
    assert histogram_quantile(0.5, Histogram((1.0, math.inf), (0.0, 0.0))) is None


def at(time_s: float, **metrics: float) -> ServerMetrics:
    return ServerMetrics(time_s, **metrics)  # type: ignore[arg-type]


def test_rates_are_the_planted_ones() -> None:
    before = at(10.0, generated_tokens=1000.0, prompt_tokens=50.0)
    between = figures(before, at(12.5, generated_tokens=3500.0, prompt_tokens=300.0))
    assert between == ServerFigures(elapsed_s=2.5, generated_per_s=1000.0, prompt_per_s=100.0)


@given(
    st.lists(st.integers(0, 500), min_size=5, max_size=5),
    st.lists(st.integers(0, 500), min_size=5, max_size=5).filter(any),
)
def test_latencies_are_those_of_the_time_between(old: list[int], new: list[int]) -> None:
    """What was observed before does not matter."""

    def total(numbers: list[int]) -> Histogram:
        counts = (float(sum(numbers[: end + 1])) for end in range(len(numbers)))
        return Histogram(BOUNDS, tuple(counts))

    before = ServerMetrics(0.0, inter_token_latency=total(old))
    both = [one + other for one, other in zip(old, new, strict=True)]
    between = figures(before, ServerMetrics(1.0, inter_token_latency=total(both)))
    assert between.inter_token_p50_s == pytest.approx(histogram_quantile(0.5, total(new)))
    assert between.inter_token_p99_s == pytest.approx(histogram_quantile(0.99, total(new)))


@pytest.mark.parametrize("name", ["generated_tokens", "prompt_tokens", "iterations"])
def test_a_counter_that_goes_back_is_a_restart(name: str) -> None:
    before = at(1.0, generated_tokens=5.0, prompt_tokens=5.0, iterations=5.0)
    after = at(2.0, **{**dict.fromkeys(("generated_tokens", "prompt_tokens"), 9.0), name: 4.0})
    assert figures(before, after) == ServerFigures(elapsed_s=1.0, restarted=True)
    assert not figures(after, at(3.0, generated_tokens=9.0)).restarted


def test_a_histogram_that_goes_back_is_a_restart() -> None:
    histograms = [Histogram((1.0, math.inf), (count, count)) for count in (5.0, 4.0)]
    before, after = (ServerMetrics(t, inter_token_latency=h) for t, h in enumerate(histograms))
    assert figures(before, after).restarted


def test_what_the_server_does_not_say_is_none() -> None:
    assert figures(at(1.0), at(2.0)) == ServerFigures(elapsed_s=1.0)
    assert figures(at(1.0), at(2.0, generated_tokens=5.0)) == ServerFigures(elapsed_s=1.0)
    assert figures(at(1.0), at(1.0)) == ServerFigures(elapsed_s=0.0)
    gauge = at(2.0, generated_per_s=77.0)
    assert figures(at(1.0), gauge).generated_per_s == 77.0
    counted = at(3.0, generated_tokens=8.0, generated_per_s=77.0)
    assert figures(at(1.0, generated_tokens=4.0), counted).generated_per_s == 2.0


def test_buckets_read_while_they_are_written_give_no_impossible_quantile() -> None:
    before = ServerMetrics(0.0, inter_token_latency=Histogram(BOUNDS, (0.0,) * 5))
    torn = Histogram(BOUNDS, (5.0, 4.0, 6.0, 5.0, 6.0))
    between = figures(before, ServerMetrics(1.0, inter_token_latency=torn))
    assert between.inter_token_p50_s == pytest.approx(0.006)
    assert between.inter_token_p99_s == pytest.approx(0.025 + 0.025 * 0.94)
    other = ServerMetrics(1.0, inter_token_latency=Histogram((1.0, math.inf), (1.0, 1.0)))
    assert figures(before, other).inter_token_p50_s is None
