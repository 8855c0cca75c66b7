"""Intervals of perplexity ratio, KL and agreement: closed forms, coverage, too few positions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from decodescope.analyzer.comparing.accuracy_intervals import (
    BLOCKS,
    PositionScores,
    few_positions,
    with_intervals,
)
from decodescope.analyzer.comparing.bootstrap import Floats, two_sided_t
from decodescope.analyzer.schema.run_report import Accuracy, Interval
from tests.helpers.comparison_reports import ACCURACY


def scored(scores: PositionScores) -> Accuracy:
    accuracy = replace(
        ACCURACY,
        positions=len(scores.kl),
        kl=float(scores.kl.mean()),
        top1_agreement=float(scores.agrees.mean()),
        perplexity_ratio=math.exp(float(scores.log_ratio.mean())),
    )
    return with_intervals(accuracy, scores)


def drawn(generator: np.random.Generator, positions: int, smoothness: float) -> PositionScores:
    """Scores whose neighbours resemble each other: a first-order process with this correlation.
    The true figures are exp(0.01), KL exp(-5 + 0.5) and an agreement of 0.9."""
    noise = generator.normal(size=(3, positions))
    state = noise[:, 0]
    walk = np.empty_like(noise)
    for place in range(positions):
        if place:
            state = smoothness * state + math.sqrt(1 - smoothness**2) * noise[:, place]
        walk[:, place] = state
    return PositionScores(
        0.01 + 0.1 * walk[0], np.exp(-5 + walk[1]), (walk[2] < 1.2815515655446004).astype(float)
    )


def present(interval: Interval | None) -> Interval:
    assert interval is not None
    return interval


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_equal_blocks_have_the_t_interval_of_their_means(size: int, seed: int) -> None:
    scores = drawn(np.random.default_rng(seed), BLOCKS * size, 0.3)
    found = scored(scores)
    means = [float(np.mean(block)) for block in np.split(scores.log_ratio, BLOCKS)]
    half = two_sided_t(0.95, BLOCKS - 1) * np.std(means, ddof=1) / math.sqrt(BLOCKS)
    interval = present(found.perplexity_ratio_interval)
    assert math.log(interval.high) == pytest.approx(np.mean(means) + half)
    assert math.log(interval.low) == pytest.approx(np.mean(means) - half)
    kl_means = [float(np.mean(block)) for block in np.split(scores.kl, BLOCKS)]
    assert found.kl_by_block == pytest.approx(kl_means)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 60), st.integers(0, 10**6))
def test_intervals_contain_their_figures_at_any_number_of_positions(
    positions: int, seed: int
) -> None:
    found = scored(drawn(np.random.default_rng(seed), positions, 0.5))
    for figure in ("perplexity_ratio", "kl", "top1_agreement"):
        interval = present(getattr(found, f"{figure}_interval"))
        assert interval.low <= getattr(found, figure) <= interval.high
    assert len(found.kl_by_block) == min(positions, BLOCKS)


@pytest.mark.parametrize("smoothness", [0.0, 0.7])
def test_intervals_cover_the_truth_although_neighbours_resemble_each_other(
    smoothness: float,
) -> None:
    truths = {"perplexity_ratio": math.exp(0.01), "kl": math.exp(-4.5), "top1_agreement": 0.9}
    generator = np.random.default_rng()
    repetitions = 200
    held = dict.fromkeys(truths, 0)
    naive = 0
    for _ in range(repetitions):
        scores = drawn(generator, 1024, smoothness)
        found = scored(scores)
        for figure, truth in truths.items():
            interval = present(getattr(found, f"{figure}_interval"))
            held[figure] += interval.low <= truth <= interval.high
        error = scores.log_ratio.std(ddof=1) / math.sqrt(1024)
        naive += abs(scores.log_ratio.mean() - 0.01) <= 1.96 * error
    # 0.94 in 7,200 repetitions at least; 200 are below 0.88 once in 2,500 times.
    assert min(held.values()) / repetitions > 0.88, held
    assert held["perplexity_ratio"] < repetitions
    # Positions that count as independent would claim far too much.
    assert smoothness == 0 or naive / repetitions < 0.75


def test_identical_sides_are_exactly_equal() -> None:
    zeros = np.zeros(100)
    found = scored(PositionScores(zeros, zeros, np.ones(100)))
    assert found.perplexity_ratio_interval == Interval(1.0, 1.0, 0.95)
    assert found.kl_interval == Interval(0.0, 0.0, 0.95)
    agreement = present(found.top1_agreement_interval)
    assert 0.94 < agreement.low < 1 == agreement.high


@pytest.mark.parametrize("share", [0.0, 0.25, 0.6, 0.97, 1.0])
def test_independent_agreement_has_wilsons_interval(share: float) -> None:
    size = 100 * BLOCKS
    agrees = np.zeros(size)
    # Every block has the same share: no more spread than independent positions have.
    agrees.reshape(BLOCKS, 100)[:, : round(100 * share)] = 1
    found = present(
        scored(PositionScores(np.zeros(size), np.ones(size), agrees)).top1_agreement_interval
    )
    t = two_sided_t(0.95, BLOCKS - 1)
    for end in (found.low, found.high):
        # Wilson: the shares from which the measured one is t standard errors away.
        assert abs(end - share) == pytest.approx(t * math.sqrt(end * (1 - end) / size), abs=1e-12)


@pytest.mark.parametrize("positions", [1, 2])
def test_fewer_than_three_positions_have_no_interval(positions: int) -> None:
    found = scored(drawn(np.random.default_rng(1), positions, 0.0))
    assert found.perplexity_ratio_interval is found.kl_interval is None
    assert found.top1_agreement_interval is None
    assert found.positions_needed == {
        "perplexity_ratio": None,
        "kl": None,
        "top1_agreement": None,
    }
    assert few_positions(found) == (
        f"{positions} positions are too few for the ratio of perplexity and KL and the share of "
        "equal tokens"
    ).replace("1 positions are", "1 position is")


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e6])
def test_figures_that_are_not_finite_have_no_interval(poison: float) -> None:
    scores = drawn(np.random.default_rng(1), 64, 0.0)
    scores.log_ratio[5] = poison
    with np.errstate(all="raise"):
        accuracy = replace(ACCURACY, positions=64, perplexity_ratio=math.inf)
        assert with_intervals(accuracy, scores).perplexity_ratio_interval is None


def halves(log_ratio: Floats) -> tuple[Accuracy, float]:
    size = len(log_ratio)
    found = scored(PositionScores(log_ratio, np.full(size, 0.1), np.ones(size)))
    interval = present(found.perplexity_ratio_interval)
    return found, (interval.high - interval.low) / 2


def centred(generator: np.random.Generator, positions: int) -> Floats:
    """Differences whose mean is 0: the sides are equally good."""
    values = generator.normal(0, 0.1, positions)
    return values - values.mean()


def test_as_many_positions_as_needed_decide() -> None:
    generator = np.random.default_rng(7)
    few, half = halves(centred(generator, 160))
    assert half > 0.005
    needed = few.positions_needed["perplexity_ratio"]
    assert needed is not None
    assert needed == pytest.approx(160 * (half / 0.005) ** 2, rel=0.1)
    assert len(str(needed).rstrip("0")) <= 2
    assert f"about {needed:,} would decide" in few_positions(few)
    enough, half = halves(centred(generator, 4 * needed))
    assert half < 0.005
    assert enough.positions_needed == {}
    assert few_positions(enough) == ""


def test_a_wide_interval_that_shows_a_difference_is_enough() -> None:
    found, half = halves(np.random.default_rng(7).normal(0.2, 0.1, 160))
    assert half > 0.005
    assert found.positions_needed == {}
