"""The tracks of whole traces: with and without steps, several devices, ranks, threads, on a CPU."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, analyze_ranks
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.timeline import OVERLAP_SHARE
from decodescope.analyzer.tracks.build import Tracks, find_tracks
from decodescope.analyzer.tracks.host import HOST_KINDS
from decodescope.analyzer.tracks.track import Track
from tests.helpers.drawn_windows import US, analysed, windows
from tests.helpers.kineto_events import (
    RECORDED,
    call,
    document,
    event,
    op,
    prelaunched,
    read,
    span,
    trace_of,
)

BASE = 1_790_857_026_000_000_000


def tracks_of(*events, **keys) -> Tracks:
    return find_tracks(analyze(trace_of(*events, **keys)))


def titles(tracks: Tracks) -> list[str]:
    return [track.title for track in tracks.tracks]


def shown(tracks: Tracks, title: str) -> list[tuple[int, int, str]]:
    (track,) = (track for track in tracks.tracks if track.title == title)
    slices = track.slices
    names = [tracks.names[label] if label >= 0 else "" for label in slices.label.tolist()]
    return list(zip(slices.start_ns.tolist(), slices.end_ns.tolist(), names, strict=True))


def test_a_trace_without_steps_has_a_timeline():
    tracks = tracks_of(call(0, 5, 1), op(10, 40, 1, name="gemm"), op(60, 90, 2, name="norm"))
    assert titles(tracks) == ["host", "str 7", "M matmul", "R reduction", "gaps"]
    assert shown(tracks, "str 7") == [(10, 40, "gemm"), (60, 90, "norm")]
    assert shown(tracks, "gaps") == [(40, 60, "")]
    assert len(tracks.steps) == 0
    assert (tracks.world, tracks.home) == ((0, 90), (10, 90))


def test_two_devices_have_tracks_of_their_own():
    tracks = tracks_of(
        call(0, 5, 1, tid=1),
        call(0, 5, 2, tid=2),
        op(10, 40, 1, device=0),
        op(20, 50, 2, device=1),
        op(60, 70, 1, device=0, stream=9),
    )
    assert titles(tracks) == [
        "g0 host",
        "g0 str 7",
        "g0 str 9",
        "g0 gaps",
        "g1 host",
        "g1 str 7",
        "g1 gaps",
    ]
    assert shown(tracks, "g0 gaps") == [(40, 60, "")]
    assert shown(tracks, "g1 gaps") == []


def test_eight_ranks_have_tracks_of_their_own_on_one_clock(tmp_path):
    paths = []
    for rank in range(8):
        at = 5 * rank
        path = tmp_path / f"rank{rank}.json"
        path.write_bytes(
            document(
                [
                    call(at, at + 5, 1),
                    op(at + 10, at + 40, 1, name="gemm"),
                    span(at, at + 50, "decode_step_0"),
                ],
                baseTimeNanoseconds=BASE,
                deviceProperties=[{"id": 0, "name": "H100"}],
                distributedInfo={"backend": "nccl", "rank": rank, "world_size": 8},
            )
        )
        paths.append(path)
    ranks = analyze_ranks(paths)
    merged = ranks.merged
    assert merged is not None, ranks.report.findings
    tracks = find_tracks(merged)
    streams = [track for track in tracks.tracks if track.key.kind == "stream"]
    assert [track.title for track in streams] == [f"r{rank}g0 str 7" for rank in range(8)]
    assert [int(track.slices.start_ns[0]) for track in streams] == [10 + 5 * r for r in range(8)]
    assert len(tracks.tracks) == 8 * len({track.title.split(" ", 1)[1] for track in tracks.tracks})


def test_the_host_shows_what_is_innermost():
    tracks = tracks_of(
        event("cpu_op", "aten::mm", 0, 100, 4242, 1),
        call(20, 40, 1),
        op(50, 90, 1),
        call(60, 80, 2, name="cudaStreamSynchronize"),
    )
    assert shown(tracks, "host") == [
        (0, 20, "aten::mm"),
        (20, 40, "cudaLaunchKernel"),
        (40, 60, "aten::mm"),
        (60, 80, "cudaStreamSynchronize"),
        (80, 100, "aten::mm"),
    ]
    (host,) = (track for track in tracks.tracks if track.key.kind == "host")
    kinds = [HOST_KINDS[kind] for kind in host.slices.kind.tolist()]
    assert kinds == ["operator", "launch", "operator", "sync", "operator"]


def test_ranges_are_shown_on_the_host_and_above_the_ops_that_they_launched():
    tracks = tracks_of(
        span(0, 100, "decode_step_0"),
        span(0, 40, "attention"),
        span(50, 100, "mlp"),
        call(10, 12, 1),
        call(20, 22, 2),
        call(60, 62, 3),
        op(200, 210, 1),
        op(220, 230, 2),
        op(240, 250, 3),
    )
    assert shown(tracks, "h-range") == [(0, 100, "decode_step_0")]
    assert shown(tracks, "range") == [(200, 250, "decode_step")]
    below = [track for track in tracks.tracks if track.title == "  .1"]
    assert [track.key.kind for track in below] == ["host_range", "range"]
    on_device = below[1].slices
    assert [tracks.path(int(label)) for label in on_device.label] == [
        "decode_step/attention",
        "decode_step/mlp",
    ]
    assert on_device.start_ns.tolist() == [200, 240]
    assert on_device.end_ns.tolist() == [230, 250]


def test_steps_begin_with_their_first_op_and_the_median_one_is_shown_first():
    tracks = tracks_of(*prelaunched(steps=3))
    assert tracks.steps.start_ns.tolist() == [100, 1_100, 2_100]
    assert tracks.steps.end_ns.tolist() == [1_100, 2_100, 2_720]
    assert tracks.analysis.median_step == 0
    assert (tracks.home_step, tracks.home) == (0, (100, 1_100))
    events = []
    for step, (start, end) in enumerate([(100, 190), (200, 340), (350, 460), (470, 900)]):
        events += [span(start - 90, start - 80, f"decode_step_{step}"), op(start, end, step + 1)]
        events.append(call(start - 89, start - 85, step + 1))
    tracks = tracks_of(*events)
    assert tracks.steps.length_ns.tolist() == [100, 150, 120, 430]
    assert (tracks.home_step, tracks.home) == (2, (350, 470))


def test_steps_of_two_threads_are_in_order_of_their_gpu_spans():
    tracks = tracks_of(
        span(0, 90, "decode_step_0", tid=1),
        span(5, 95, "decode_step_0", tid=2),
        call(10, 12, 1, tid=1),
        call(10, 12, 2, tid=2),
        op(500, 600, 1),
        op(200, 300, 2, stream=9),
    )
    assert tracks.steps.start_ns.tolist() == [200, 500]
    assert tracks.step.tolist() == [1, 0]


def test_a_cpu_capture_has_a_stream_for_each_thread_and_no_host():
    tracks = find_tracks(analyze(read(RECORDED)))
    kinds = {track.key.kind for track in tracks.tracks}
    assert kinds == {"range", "stream", "part", "gap"}


@pytest.mark.parametrize("events", [[], [span(0, 9, "decode_step")], [call(3, 5, 1)]])
def test_a_trace_without_ops_shows_its_host(events):
    tracks = tracks_of(*events)
    assert all(track.key.kind in ("host", "host_range") for track in tracks.tracks)
    assert tracks.home == tracks.world
    assert bool(tracks.tracks) == bool(events)


def is_sub_row(track: Track) -> bool:
    """Whether it is one of a stream, or of what fits into none of them."""
    return track.key.kind == "stream" or (track.key.kind == "overlap" and track.key.level > 0)


def rows_in(tracks: Tracks, chosen: Callable[[Track], bool]) -> list[int]:
    return [row for track in filter(chosen, tracks.tracks) for row in track.slices.row.tolist()]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=25))
def test_ops_that_run_at_once_are_in_sub_rows_or_counted(times):
    """Every op is in one sub-row in which it meets no other, else in the
    track of those that fit into none, and again in the track of its part."""
    names = ("gemm", "flash_fwd", "rmsnorm", "silu_and_mul")
    tracks = tracks_of(
        call(0, 5, 1),
        *(op(at, at + took, 1, name=names[i % 4]) for i, (at, took) in enumerate(sorted(times))),
    )
    assert sorted(rows_in(tracks, is_sub_row)) == list(range(len(times)))
    streams = [track for track in tracks.tracks if track.key.kind == "stream"]
    assert len(streams) <= 4
    for track in streams:
        assert (track.slices.start_ns[1:] >= track.slices.end_ns[:-1]).all()
        assert track.part.tolist() == list(range(len(track.slices)))
    for track in tracks.tracks:
        if is_sub_row(track) and track.key.kind == "overlap":
            assert track.title == f"  {len(track.slices)} more"
            for start in track.slices.start_ns.tolist():
                for sub_row in streams:
                    running = (sub_row.slices.start_ns <= start) & (sub_row.slices.end_ns > start)
                    assert running.any()
    parts = [track for track in tracks.tracks if track.key.kind == "part"]
    if parts:
        rows = rows_in(tracks, lambda track: track.key.kind == "part")
        assert sorted(rows) == list(range(len(times)))
        assert all(len(track.kinds) == 1 for track in parts)
        busy_ns = [int((track.end_ns - track.start_ns).sum()) for track in parts]
        assert busy_ns == sorted(busy_ns, reverse=True)


@settings(deadline=None)
@given(windows())
def test_every_op_and_all_idle_time_is_in_a_track(window):
    analysis = analysed(*window)
    tracks = find_tracks(analysis)
    every_op = list(range(len(analysis.trace.ops)))
    assert sorted(rows_in(tracks, is_sub_row)) == every_op
    assert set(rows_in(tracks, lambda track: track.key.kind == "part")) <= set(every_op)
    for device, busy in analysis.busy.items():
        (gap,) = (track for track in tracks.tracks if track.key[:2] == ("gap", device))
        extent = int(busy.end_ns[-1] - busy.start_ns[0])
        assert int(gap.slices.length_ns.sum()) == extent - busy.busy_ns
        assert set(gap.slices.kind.tolist()) <= set(range(len(GAP_CLASSES)))
        ops = [(o.start, o.end) for o in window[0] if o.device == device]
        twice = sum(sum(s <= at < e for s, e in ops) > 1 for at in range(0, 300 * US, US)) * US
        over = [track for track in tracks.tracks if track.key == ("overlap", device, 0, 0)]
        shown = sum(int(track.slices.length_ns.sum()) for track in over)
        assert shown == (twice if twice > OVERLAP_SHARE * busy.busy_ns else 0)
    for track in tracks.tracks:
        assert (np.diff(track.slices.start_ns) >= 0).all()
        assert (track.start_ns < track.end_ns).all()
        assert all(a <= b for a, b in itertools.pairwise(track.start_ns.tolist()))
        assert (track.start_ns[1:] >= track.end_ns[:-1]).all()
    assert len({track.key for track in tracks.tracks}) == len(tracks.tracks)
    assert int(tracks.busy.slices.length_ns.sum()) <= sum(b.busy_ns for b in analysis.busy.values())
