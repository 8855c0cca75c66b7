"""What a column shows, against a look at every nanosecond."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.tracks.track import NONE, Slices, Track, TrackKey, track_of

KINDS = 3


def track(*slices: tuple[int, int, int], kind: str = "stream") -> Track:
    """A track of (start, end, kind), in order; the label of a slice is its place modulo 4."""
    start, end, kinds = np.array(slices, dtype=np.int64).reshape(-1, 3).T
    rows = np.arange(len(start))
    return track_of(
        TrackKey(kind, 0), "it", Slices(start, end, rows % 4, rows, kinds.astype(np.int8))
    )


@st.composite
def slices(draw, disjoint: bool = False):
    """Sorted slices, some of them empty or overlapping."""
    at, found = 0, []
    for _ in range(draw(st.integers(0, 14))):
        at += draw(st.integers(0, 7))
        end = at + draw(st.integers(1 if disjoint else 0, 9))
        found.append((at, end, draw(st.integers(0, KINDS - 1))))
        at = end if disjoint else at
    return sorted(found, key=lambda one: one[:2])


edges = st.lists(st.integers(-5, 120), min_size=2, max_size=12).map(sorted)


def ticks(found, begin, end):
    """The kind that covers each nanosecond: that of the slice whose attributed time it is."""
    covered = {}
    for start, stop, kind in found:
        for at in range(start, stop):
            covered.setdefault(at, kind)
    return [covered[at] for at in range(begin, end) if at in covered]


@given(slices(), edges)
def test_a_column_is_as_busy_as_its_nanoseconds(found, cut):
    columns = track(*found).columns(np.array(cut))
    for place, (begin, end) in enumerate(itertools.pairwise(cut)):
        covering = ticks(found, begin, end)
        if end > begin:
            assert columns.busy[place] == len(covering) / (end - begin)
            if not covering:
                assert columns.kind[place] == NONE
                assert columns.first[place] == columns.after[place]
            else:
                counts = [covering.count(kind) for kind in range(KINDS)]
                assert counts[columns.kind[place]] == max(counts)
        else:
            inside = any(start < begin < stop for start, stop, _ in found)
            assert columns.busy[place] == inside or bool(ticks(found, begin - 1, begin + 1))


@given(slices(disjoint=True), edges)
def test_the_largest_gap_of_a_column_is_the_longest_that_touches_it(found, cut):
    gaps = track(*found, kind="gap")
    largest = gaps.largest(gaps.columns(np.array(cut)))
    for place, (begin, end) in enumerate(itertools.pairwise(cut)):
        touching = [i for i, (start, stop, _) in enumerate(found) if start < end and stop > begin]
        if begin == end:
            touching = [i for i in touching if found[i][0] < begin < found[i][1]]
        best = max(touching, key=lambda i: (found[i][1] - found[i][0], -i), default=NONE)
        assert largest[place] == best


@given(slices(), edges, st.sets(st.integers(0, 3)))
def test_marked_columns_hold_a_marked_slice(found, cut, wanted):
    one = track(*found)
    labels = np.array([label in wanted for label in range(4)])
    columns = one.columns(np.array(cut))
    marked = one.marked(one.count_marks(one.named(labels)), columns)
    parts = one.slices.label[one.part]
    for place in range(len(cut) - 1):
        seen = parts[columns.first[place] : columns.after[place]].tolist()
        assert marked[place] == any(label in wanted for label in seen)


@given(slices(), st.integers(-3, 120), st.integers(1, 30))
def test_a_click_hits_what_covers_most_of_the_column(found, begin, length):
    one = track(*found)
    hit = one.at(begin, begin + length)
    if hit is None:
        assert ticks(found, begin, begin + length) == []
        return

    def inside(place: int) -> int:
        mine = np.flatnonzero(one.part == place)
        if not len(mine):
            return 0
        start, end = int(one.start_ns[mine[0]]), int(one.end_ns[mine[0]])
        return max(min(end, begin + length) - max(start, begin), 0)

    assert inside(hit) == max(map(inside, range(len(found)))) > 0


def test_times_near_the_limit_of_a_column_are_exact():
    base = 2**62
    columns = track((base, base + 3, 0), (base + 5, base + 9, 1)).columns(
        np.array([base - 1, base + 4, base + 6, base + 10])
    )
    assert columns.busy.tolist() == [3 / 5, 1 / 2, 3 / 4]
    assert columns.kind.tolist() == [0, 1, 1]
