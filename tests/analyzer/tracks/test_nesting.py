"""Nested events against a look at every nanosecond; events of broken traces need not nest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.trace import Intervals
from decodescope.analyzer.tracks.host import depths, innermost

events = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda one: (one[0], one[0] + one[1])),
    max_size=20,
).map(lambda found: sorted(found, key=lambda one: (one[0], -one[1])))


def intervals(found) -> Intervals:
    return Intervals(*np.array(found, dtype=np.int64).reshape(-1, 2).T)


def open_at(found, at, below=None):
    rows = range(len(found) if below is None else below)
    return max((row for row in rows if found[row][0] <= at < found[row][1]), default=-1)


@given(events)
def test_the_innermost_pieces_cover_each_nanosecond_once(found):
    pieces, row = innermost(intervals(found))
    shown = {}
    for start, end, which in zip(
        pieces.start_ns.tolist(), pieces.end_ns.tolist(), row.tolist(), strict=True
    ):
        assert start < end
        for at in range(start, end):
            assert at not in shown
            shown[at] = which
    expected = {at: open_at(found, at) for at in range(60)}
    assert shown == {at: which for at, which in expected.items() if which >= 0}


@given(events, st.integers(1, 30))
def test_a_depth_is_one_more_than_that_of_the_event_around(found, most):
    expected = []
    for row, (start, _) in enumerate(found):
        around = open_at(found, start, below=row)
        expected.append(0 if around < 0 else expected[around] + 1)
    shown = depths(intervals(found), most).tolist()
    assert shown == [min(depth, most) for depth in expected]
