"""Moving along tracks, and the totals of a span, against slow references."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.tracks.build import find_tracks
from decodescope.analyzer.tracks.finding import (
    find_labels,
    following,
    inside_range,
    next_gap,
    nth_largest_gap,
    span_totals,
)
from tests.helpers.app import recorded
from tests.helpers.drawn_windows import US, analysed, windows

times = st.integers(-10, 300).map(lambda at: at * US)


@settings(deadline=None)
@given(windows(), times, st.booleans())
def test_the_next_slice_starts_next(window, at, backwards):
    for track in find_tracks(analysed(*window)).tracks:
        starts = track.slices.start_ns.tolist()
        found = following(track, at, backwards)
        if backwards:
            assert found == max((i for i, start in enumerate(starts) if start < at), default=None)
        else:
            assert found == min((i for i, start in enumerate(starts) if start > at), default=None)


@settings(deadline=None)
@given(windows(), times, st.integers(0, 20).map(lambda us: us * US), st.sampled_from([None, 0, 1]))
def test_the_next_gap_is_the_first_long_one_after_a_time(window, at, least, device):
    gaps = analysed(*window).gaps
    rows = [
        (start, row)
        for row, (start, end) in enumerate(
            zip(gaps.start_ns.tolist(), gaps.end_ns.tolist(), strict=True)
        )
        if end - start >= least and device in (None, int(gaps.device[row]))
    ]
    expected = min((one for one in rows if one[0] > at), default=min(rows, default=(0, None)))
    assert next_gap(gaps, at, least, device) == expected[1]


@settings(deadline=None)
@given(windows(), st.sampled_from([None, 0, 1]))
def test_gaps_by_length_come_one_after_another_and_then_again(window, device):
    gaps = analysed(*window).gaps
    mine = [row for row in range(len(gaps)) if device in (None, int(gaps.device[row]))]
    row, seen = None, []
    for _ in mine:
        row = nth_largest_gap(gaps, row, device)
        seen.append(row)
    assert sorted(seen) == mine
    lengths = gaps.length_ns[seen].tolist() if seen else []
    assert lengths == sorted(lengths, reverse=True)
    assert nth_largest_gap(gaps, row, device) == (seen[0] if seen else None)


@settings(deadline=None)
@given(windows(), st.sets(st.sampled_from(["kernel", "cudaLaunchKernel", "cudaMalloc"])))
def test_matches_are_in_order_of_time_and_complete(window, wanted):
    tracks = find_tracks(analysed(*window))
    found = find_labels(tracks, np.array([name in wanted for name in tracks.names], dtype=np.bool_))
    shown = list(
        zip(found.start_ns.tolist(), found.track.tolist(), found.slice.tolist(), strict=True)
    )
    expected = [
        (int(track.slices.start_ns[i]), place, i)
        for place, track in enumerate(tracks.tracks)
        for i in range(len(track.slices))
        if track.slices.label[i] >= 0 and tracks.names[track.slices.label[i]] in wanted
    ]
    assert shown == sorted(expected)


def test_stepping_through_matches_visits_each_track_and_turns_round():
    tracks = find_tracks(analysed(*_two_streams()))
    found = find_labels(tracks, np.array([name == "kernel" for name in tracks.names]))
    assert len(found) == 4
    at, visited = (-1, -1), []
    for _ in range(4):
        place = found.step(at, backwards=False)
        visited.append(place)
        at = int(found.start_ns[place]), int(found.track[place])
    assert visited == [0, 1, 2, 3]
    assert found.step(at, backwards=False) == 0
    assert found.step(at, backwards=True) == 2
    assert found.step((-1, -1), backwards=True) == 3


def _two_streams():
    from tests.helpers.drawn_windows import Call, Op

    ops = [Op(start, start + 5, 1, stream, 0) for start in (10, 30) for stream in (7, 8)]
    return ops, [Call(0, 2, 1, "cudaLaunchKernel", 1)]


@settings(deadline=None)
@given(windows(), times, st.integers(0, 300))
def test_the_totals_of_a_span_add_up_to_it(window, start, length):
    analysis = analysed(*window)
    end = start + length * US
    totals = span_totals(analysis, start, end)
    ops = analysis.trace.ops
    inside = (ops.start_ns < end) & (ops.end_ns > start)
    assert sum(count for _, count, _ in totals.kernels) == inside.sum()
    for device in totals.devices:
        idle = sum(ns for _, ns in device.idle_ns)
        assert device.busy_ns + idle + device.before_or_after_ns == totals.length_ns
        assert device.ops == (inside & (ops.device == device.label)).sum()
        covered = {
            tick
            for row in np.flatnonzero(ops.device == device.label)
            for tick in range(
                max(int(ops.start_ns[row]), start), min(int(ops.end_ns[row]), end), US
            )
        }
        assert device.busy_ns == len(covered) * US
        assert {name for name, _ in device.idle_ns} <= set(GAP_CLASSES)
    assert sum(ns for _, _, ns in totals.kernels) == sum(one.busy_ns for one in totals.devices)
    launched = analysis.trace.calls.start_ns[analysis.launches.call]
    assert totals.launch_calls == ((launched >= start) & (launched < end)).sum()


def test_a_folded_path_is_all_that_it_stands_for():
    analysis = recorded.window("eager").analysis
    tracks = find_tracks(analysis)
    folded = inside_range(tracks, "decode_step/model/layer.*")
    each = [inside_range(tracks, f"decode_step/model/layer.{number}") for number in range(16)]
    for place, found in enumerate(folded):
        assert found.tolist() == np.any([one[place] for one in each], axis=0).tolist()
    assert sum(int(found.sum()) for found in folded) > 1_968
    assert not any(found.any() for found in inside_range(tracks, "no/such/*"))
