"""Slices are put on tracks so that no viewer drops one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.chrome.chrome_export import as_drawn
from decodescope.analyzer.timing.intervals import first_fit
from decodescope.analyzer.trace import HostEvents
from tests.helpers.kineto_events import call, span, trace_of

slices = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=15)


@given(slices)
@settings(deadline=None)
def test_tracks_separate_and_nest(rows: list[tuple[int, int]]) -> None:
    rows = sorted(((start, start + length) for start, length in rows), key=lambda r: (r[0], -r[1]))
    start, end = (np.array([r[i] for r in rows], dtype=np.int64) for i in (0, 1))
    apart, nested = (first_fit(start, end, may_nest=may_nest) for may_nest in (False, True))
    for i, (a, b) in enumerate(rows):
        for j, (c, d) in enumerate(rows[:i]):
            if apart[i] == apart[j]:
                assert a >= d or b <= c
            if nested[i] == nested[j]:
                assert a >= d or b <= d
    if not any(a < d for i, (a, _) in enumerate(rows) for _, d in rows[:i]):
        assert not apart.any()


@given(slices, st.booleans())
@settings(deadline=None)
def test_each_slice_gets_the_first_track_that_it_fits_on(
    rows: list[tuple[int, int]], may_nest: bool
) -> None:
    rows = sorted(((start, start + length) for start, length in rows), key=lambda r: (r[0], -r[1]))
    tracks: list[list[tuple[int, int]]] = []
    expected = []
    for start, end in rows:
        still_open = [[one for one in track if one[1] > start] for track in tracks]
        fits = [all(may_nest and end <= one[1] for one in track) for track in still_open]
        expected.append([*fits, True].index(True))
        if expected[-1] == len(tracks):
            tracks.append([])
        tracks[expected[-1]].append((start, end))
    columns = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    assert first_fit(*columns, may_nest=may_nest).tolist() == expected


def test_thirty_thousand_open_slices() -> None:
    """All overlap, so each has a track of its own; to try every track takes 10^9 steps."""
    start = np.arange(30_000, dtype=np.int64)
    for may_nest in (False, True):
        tracks = first_fit(start, start + 1_000_000, may_nest=may_nest)
        assert (tracks == start).all()


def test_host_events_keep_their_thread_if_viewers_accept_it() -> None:
    trace = trace_of(
        span(0, 50, "range", tid=7),
        call(10, 20, 1, tid=7),
        call(45, 60, 2, tid=7),
        {**call(0, 5, 3), "tid": "worker"},
        {**call(6, 7, 4), "tid": "worker"},
        {**call(0, 5, 5), "pid": 2**40, "tid": 7},
    )
    assert trace.calls.tid.min() < 0
    places = as_drawn(HostEvents.concatenate([trace.ranges, trace.calls]))
    ranges, calls = places.take(slice(0, 1)), places.take(slice(1, None))
    by_correlation = dict(
        zip(trace.calls.correlation.tolist(), zip(calls.pid, calls.tid, strict=True), strict=True)
    )
    assert (ranges.pid[0], ranges.tid[0]) == by_correlation[1] == (trace.ranges.pid[0], 7)
    assert by_correlation[3] == by_correlation[4] != by_correlation[1]
    assert by_correlation[2][1] not in {7, by_correlation[3][1]}
    assert by_correlation[5][0] not in {2**40, by_correlation[1][0]}
    for column in (places.pid, places.tid):
        assert ((column >= 0) & (column < 2**31)).all()
