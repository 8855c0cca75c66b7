"""Speed beside error: who is beaten, by whom, and what noise leaves undecided."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from decodescope.analyzer.comparing.comparison import compare_runs, standings_of
from decodescope.analyzer.schema.comparison_report import SpeedRatio, Standing, VariantRates
from decodescope.analyzer.schema.run_report import Accuracy, Interval
from tests.helpers.comparison_reports import ACCURACY, run_of

STEADY = (1.0, 1.001, 0.999, 1.0)
Variant = tuple[float, float]


def accuracy(*kl_by_block: float) -> Accuracy:
    kl = sum(kl_by_block) / len(kl_by_block)
    return replace(ACCURACY, kl=kl, kl_by_block=kl_by_block)


def compared(**variants: tuple[float, Accuracy | None]) -> dict[str, tuple[str, ...]]:
    """Who beats each variant of these rates, measured in four steady rounds."""
    runs = [
        run_of(name, number, rate * STEADY[(number + place) % 4], accuracy=found)
        for number in range(4)
        for place, (name, (rate, found)) in enumerate(variants.items())
    ]
    return {one.variant: one.beaten_by for one in compare_runs(runs, {}).comparison.standings}


def exact(points: list[Variant]) -> tuple[Standing, ...]:
    """The standings of variants that are measured without any noise."""
    variants = [
        VariantRates(f"v{number}", (rate,), rate, None, replace(ACCURACY, kl=kl))
        for number, (rate, kl) in enumerate(points)
    ]
    rates = {one.variant: one.tokens_per_s[0] for one in variants}
    return standings_of(
        variants, lambda base, other: SpeedRatio(rates[other] / rates[base], None, "unknown")
    )


# Few values, so that ties are common.
points = st.lists(st.tuples(st.integers(1, 6).map(float), st.integers(0, 5).map(float)), min_size=2)


@given(points)
def test_without_noise_the_unbeaten_are_the_pareto_frontier(drawn: list[Variant]) -> None:
    def beats(one: Variant, two: Variant) -> bool:
        return one[0] >= two[0] and one[1] <= two[1] and one != two

    found = {one.variant: one.beaten_by for one in exact(drawn)}
    for number, point in enumerate(drawn):
        winners = {
            f"v{index}"
            for index, other in enumerate(drawn)
            if beats(other, point) and not any(beats(better, other) for better in drawn)
        }
        assert set(found[f"v{number}"]) == winners


@st.composite
def noisy_speeds(draw: st.DrawFn) -> dict[tuple[str, str], int]:
    """Any outcome of every pair: also circles, which intervals of wide noise can make."""
    count = draw(st.integers(2, 6))
    names = [f"v{number}" for number in range(count)]
    pairs = [(one, two) for place, one in enumerate(names) for two in names[place + 1 :]]
    return {pair: draw(st.sampled_from((-1, 0, 1))) for pair in pairs}


@settings(max_examples=200)
@given(noisy_speeds(), st.data())
def test_every_beaten_variant_is_beaten_by_one_that_nothing_beats(
    outcomes: dict[tuple[str, str], int], data: st.DataObject
) -> None:
    names = sorted({name for pair in outcomes for name in pair})
    kls = {name: float(data.draw(st.integers(1, 3))) for name in names}

    def speeds(base: str, other: str) -> SpeedRatio:
        outcome = outcomes.get((base, other), -outcomes.get((other, base), 0))
        verdict = ("slower", "no_difference_shown", "faster")[outcome + 1]
        return SpeedRatio(1.0 + outcome / 2, Interval(0.9, 1.1, 0.95), verdict)

    variants = [
        VariantRates(name, (1.0,), 1.0, None, replace(ACCURACY, kl=kls[name])) for name in names
    ]
    found = {one.variant: one.beaten_by for one in standings_of(variants, speeds)}
    unbeaten = {name for name, winners in found.items() if not winners}
    assert set(found) == set(names)
    assert unbeaten
    for name, winners in found.items():
        assert set(winners) <= unbeaten - {name}
        for winner in winners:
            outcome = speeds(name, winner).value - 1
            assert outcome >= 0
            assert kls[winner] <= kls[name]
            assert outcome > 0 or kls[winner] < kls[name]
    mirrored = standings_of(variants[::-1], speeds)
    assert {one.variant: set(one.beaten_by) for one in mirrored} == {
        name: set(winners) for name, winners in found.items()
    }


def test_a_difference_within_the_noise_of_rounds_is_a_tie() -> None:
    better, worse = accuracy(1e-4, 2e-4, 1e-4), accuracy(3e-4, 4e-4, 3e-4)
    assert compared(a=(100.0, better), b=(100.02, worse)) == {"b": ("a",), "a": ()}
    assert compared(a=(100.0, better), b=(101.0, worse)) == {"b": (), "a": ()}


def test_a_difference_within_the_noise_of_positions_is_a_tie() -> None:
    drawn = random.Random(7)
    shared = [drawn.lognormvariate(-8, 1) for _ in range(128)]
    one, two = (accuracy(*(kl * drawn.lognormvariate(0, 0.5) for kl in shared)) for _ in range(2))
    slow, fast = (one, two) if one.kl < two.kl else (two, one)
    assert slow.kl < fast.kl
    assert compared(slow=(100.0, slow), fast=(200.0, fast)) == {"fast": (), "slow": ("fast",)}


def test_positions_are_compared_in_pairs() -> None:
    """Both vary by a factor of 100 along the text, and one is worse by 5 % everywhere."""
    shared = [10.0 ** (-4 + 2 * math.sin(place)) for place in range(128)]
    slow, fast = accuracy(*shared), accuracy(*(1.05 * kl for kl in shared))
    assert compared(slow=(100.0, slow), fast=(200.0, fast)) == {"fast": (), "slow": ()}


def test_ties_do_not_add_up() -> None:
    """Each is faster than the one before at an error not shown worse, but the last one's is."""
    noise = [1e-4 * math.sin(place) for place in range(64)]
    a = (100.0, accuracy(*(1.00e-3 + one for one in noise)))
    b = (110.0, accuracy(*(1.01e-3 - one for one in noise)))
    c = (120.0, accuracy(*(1.02e-3 + one for one in noise)))
    assert compared(a=a, b=b) == {"b": (), "a": ("b",)}
    assert compared(b=b, c=c) == {"c": (), "b": ("c",)}
    assert compared(a=a, b=b, c=c) == {"c": (), "b": ("c",), "a": ()}


def test_equal_bits_at_another_speed() -> None:
    same = accuracy(1e-4, 2e-4, 1e-4)
    assert compared(fused=(100.0, same), graph=(140.0, same)) == {"graph": (), "fused": ("graph",)}


def test_two_rounds_have_no_noise_so_the_means_decide() -> None:
    runs = [
        run_of(name, number, rate, accuracy=accuracy(1e-4, 1e-4))
        for number in range(2)
        for name, rate in (("a", 100.0), ("b", 100.1))
    ]
    b, a = compare_runs(runs, {}).comparison.standings
    assert (b.variant, b.beaten_by, a.beaten_by) == ("b", (), ("b",))


@pytest.mark.parametrize("missing", ["accuracy", "speed"])
def test_a_variant_without_one_of_the_figures_is_not_ranked(missing: str) -> None:
    runs = []
    for number in range(3):
        lacking = run_of("x", number, 500.0)
        changes = (
            {"accuracy": None}
            if missing == "accuracy"
            else {"interpreted": True, "tokens_per_s": None}
        )
        runs += [
            run_of("a", number, 100.0),
            run_of("b", number, 200.0),
            replace(lacking, **changes),
        ]
    found = compare_runs(runs, {}).comparison.standings
    assert [one.variant for one in found] == ["b", "a"]
    without_b = [run for run in runs if run.variant != "b"]
    assert compare_runs(without_b, {}).comparison.standings == ()
