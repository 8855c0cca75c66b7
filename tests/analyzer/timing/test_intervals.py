"""Interval arithmetic against a brute force that looks at every nanosecond."""

import random
from decimal import ROUND_HALF_EVEN, Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.readers.kineto.event import to_nanoseconds
from decodescope.analyzer.timing.intervals import (
    covered_until,
    depth_at_starts,
    depth_changes,
    first_fit,
    grouped_busy_ns,
    open_changes,
    overlapped,
    union,
)
from decodescope.analyzer.trace import Intervals

HORIZON = 60
Interval = tuple[int, int]
intervals = st.lists(
    st.tuples(st.integers(0, HORIZON - 1), st.integers(0, 12)).map(
        lambda pair: (pair[0], min(pair[0] + pair[1], HORIZON))
    ),
    max_size=14,
)


def columns(rows: list[Interval]) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(rows)
    return (
        np.array([start for start, _ in rows], dtype=np.int64),
        np.array([end for _, end in rows], dtype=np.int64),
    )


def running(rows: list[Interval]) -> list[int]:
    """How many intervals cover each nanosecond."""
    return [sum(start <= at < end for start, end in rows) for at in range(HORIZON)]


@given(intervals)
def test_union_covers_what_any_interval_covers(rows: list[Interval]) -> None:
    busy = union(*columns(rows))
    covered = [bool(count) for count in running(rows)]
    drawn = [count > 0 for count in running(list(zip(busy.start_ns, busy.end_ns, strict=True)))]
    assert drawn == covered
    assert busy.busy_ns == sum(covered)
    assert (busy.start_ns[1:] > busy.end_ns[:-1]).all()


@given(intervals.filter(bool))
def test_union_names_the_op_that_opens_and_the_one_that_ends_last(rows: list[Interval]) -> None:
    start, end = columns(rows)
    busy = union(start, end)
    for row in range(len(busy.first)):
        inside = [
            i
            for i in range(len(start))
            if busy.start_ns[row] <= start[i] and end[i] <= busy.end_ns[row]
        ]
        assert busy.first[row] == inside[0]
        assert busy.last_ending[row] == max(i for i in inside if end[i] == busy.end_ns[row])


@given(intervals)
def test_overlap_is_where_two_or_more_run(rows: list[Interval]) -> None:
    assert overlapped(*columns(rows)).length_ns.sum() == sum(count >= 2 for count in running(rows))


@given(intervals, st.integers(1, 4))
def test_an_interval_is_in_the_first_row_that_is_free(rows: list[Interval], most: int) -> None:
    start_ns, end_ns = columns(rows)
    free_ns, expected = [start_ns[0] if len(rows) else 0] * most, []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        free = [row for row, until in enumerate(free_ns) if until <= start]
        expected.append(free[0] if free else most)
        if free:
            free_ns[free[0]] = end
    assert first_fit(start_ns, end_ns, most=most).tolist() == expected


@given(intervals, st.lists(st.integers(-5, HORIZON + 5), max_size=8))
def test_covered_until_counts_what_lies_before(rows: list[Interval], times: list[int]) -> None:
    found = covered_until(union(*columns(rows)), np.array(times, dtype=np.int64))
    assert found.tolist() == [sum(c > 0 for c in running(rows)[: max(at, 0)]) for at in times]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=20))
def test_grouped_busy_is_the_union_of_each_group(rows: list[tuple[int, int, int]]) -> None:
    group = np.array([g for g, _, _ in rows], dtype=np.int64)
    start = np.array([s for _, s, _ in rows], dtype=np.int64)
    end = np.array([s + d for _, s, d in rows], dtype=np.int64)
    expected = [
        sum(c > 0 for c in running([(s, s + d) for g, s, d in rows if g == one]))
        for one in range(5)
    ]
    assert grouped_busy_ns(group, start, end, 5).tolist() == expected


def test_grouped_busy_does_not_overflow_with_absolute_times() -> None:
    start = np.full(2000, 1_790_857_026_000_000_000, dtype=np.int64)
    group = np.arange(2000)
    assert grouped_busy_ns(group, start, start + 7, 2000).tolist() == [7] * 2000


@given(intervals, st.lists(st.integers(0, HORIZON), max_size=6))
def test_depth_counts_those_that_arrived_and_have_not_left(
    rows: list[Interval], times: list[int]
) -> None:
    start, end = columns(rows)
    at = np.array(times, dtype=np.int64)
    expected = [sum(s <= t for s in start) - sum(e <= t for e in end) for t in times]
    assert depth_at_starts(start, end, at).tolist() == expected


@given(intervals)
def test_depth_changes_draw_the_same_curve(rows: list[Interval]) -> None:
    start, end = columns(rows)
    times, depths = depth_changes(start, end)
    level = {int(t): int(d) for t, d in zip(times, depths, strict=True)}
    depth, curve = 0, []
    for at in range(HORIZON):
        depth = level.get(at, depth)
        curve.append(depth)
    assert curve == running(rows)
    assert depths.tolist()[-1:] in ([], [0])


def raws(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(text.encode()) for text in texts]


@given(
    st.lists(
        st.decimals(min_value=0, max_value=Decimal(2) * 10**15, places=3, allow_nan=False),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([0, 1, 2, 3, 6]),
)
def test_microseconds_become_exact_nanoseconds(values: list[Decimal], places: int) -> None:
    texts = [f"{value:.{places}f}" for value in values]
    found, usable = to_nanoseconds(raws(*texts))
    assert usable.all()
    expected = [
        int((Decimal(text) * 1000).to_integral_value(rounding=ROUND_HALF_EVEN)) for text in texts
    ]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("0.001", 1),
        ("-0.5", -500),
        ("-12.345", -12_345),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ("0.0005", 0),
        ("0.0015", 2),
        ('"12.5"', 12_500),
        ("1e-40", 0),
        ("2305843009213693.951", 2**61 - 1),
        ("2305843009213693.953", None),
        ("9999999999999999", None),
        ("99999999999999999999999", None),
        ("1e999999", None),
        ("NaN", None),
        ("Infinity", None),
        ("null", None),
        ("", None),
        ("true", None),
        ('"1,2"', None),
        ("[1]", None),
    ],
)
def test_odd_numbers(text: str, expected: int | None) -> None:
    found, usable = to_nanoseconds(raws("7.5", text))
    assert found.tolist() == [7500, expected or 0]
    assert usable.tolist() == [True, expected is not None]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("outermost", [False, True])
def test_open_events_that_overlap_in_any_way(seed: int, outermost: bool) -> None:
    numbers = random.Random(seed)
    most = numbers.choice((3, 40, 400))
    times = [numbers.sample(range(most), 2) for _ in range(numbers.randint(0, 60))]
    times += [[at, at] for at in range(0, most, 7)]
    ordered = sorted((min(pair), -max(pair)) for pair in times)
    events = Intervals(
        np.array([start for start, _ in ordered], dtype=np.int64),
        np.array([-end for _, end in ordered], dtype=np.int64),
    )
    since_ns, row = open_changes(events, outermost=outermost)
    for at in range(-1, most + 1):
        is_open = np.flatnonzero((events.start_ns <= at) & (at < events.end_ns)).tolist()
        expected = is_open[0 if outermost else -1] if is_open else -1
        assert row[np.searchsorted(since_ns, at, side="right") - 1] == expected
    assert (np.diff(row) != 0).all()
