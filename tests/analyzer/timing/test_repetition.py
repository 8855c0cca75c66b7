import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from decodescope.analyzer.timing.repetition import Run, maximal_runs

_NAMES = st.integers(1, 4).flatmap(lambda kinds: st.lists(st.integers(0, kinds - 1), max_size=40))
_PERIODIC = st.builds(
    lambda before, period, times, part, after: before + period * times + period[:part] + after,
    before=st.lists(st.integers(0, 2), max_size=6),
    period=st.lists(st.integers(0, 2), min_size=1, max_size=13),
    times=st.integers(0, 5),
    part=st.integers(0, 13),
    after=st.lists(st.integers(0, 2), max_size=6),
)


def _found(names: list[int], min_repeats: int) -> list[Run]:
    return list(maximal_runs(np.array(names, dtype=np.int64), min_repeats=min_repeats))


def _brute_force(names: list[int], min_repeats: int) -> list[Run]:
    """Every run by its definition: for each period the longest stretches that repeat with it."""
    runs = []
    for period in range(1, len(names) // min_repeats + 1):
        start = 0
        for at in range(len(names) - period + 1):
            if at < len(names) - period and names[at] == names[at + period]:
                continue
            stretch = names[start : at + period]
            if len(stretch) >= min_repeats * period and _is_primitive(stretch[:period]):
                runs.append(Run(start, at + period, period))
            start = at + 1
    return sorted(runs, key=lambda run: (-len(run), run.period, run.start))


def _is_primitive(period: list[int]) -> bool:
    whole = len(period)
    return not any(
        period == period[:part] * (whole // part) for part in range(1, whole) if whole % part == 0
    )


@given(st.one_of(_NAMES, _PERIODIC), st.integers(3, 5))
@example([], 3)
@example([0], 3)
@example([0] * 9, 3)
def test_all_runs_of_three_periods_are_found(names: list[int], min_repeats: int) -> None:
    assert _found(names, min_repeats) == _brute_force(names, min_repeats)


@given(st.one_of(_NAMES, _PERIODIC))
def test_of_two_periods_only_runs_are_found_and_those_of_distinct_names(names: list[int]) -> None:
    found, there = _found(names, 2), _brute_force(names, 2)
    assert [run for run in there if run in found] == found
    for run in there:
        period = names[run.start : run.start + run.period]
        if len(run) >= 3 * run.period or len(set(period)) == len(period):
            assert run in found


def test_runs_nest_and_overlap() -> None:
    layer = [1, 2, 3, 3, 3, 3]
    step = [0, *layer * 4, 9, 8, 7]
    names = [5, 6, *step * 3, 5]
    found = _found(names, 3)
    assert found[0] == Run(2, 2 + 3 * len(step), len(step))
    assert [run for run in found if run.period == len(layer)] == [
        Run(3 + at * len(step), 3 + at * len(step) + 4 * len(layer), len(layer)) for at in range(3)
    ]
    assert sum(run.period == 1 for run in found) == 12


def test_a_period_of_many_names_that_repeats_twice() -> None:
    once = np.random.default_rng(3).integers(0, 5, 10_001)
    assert maximal_runs(np.tile(once, 2))[0] == Run(0, 20_002, 10_001)


@given(st.integers(0, 2**32))
def test_names_are_any_integers(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    names = numbers.integers(0, 3, 30)
    meant = numbers.permutation(np.array([-(2**62), 0, 2**62]))
    assert maximal_runs(meant[names]) == maximal_runs(names)
