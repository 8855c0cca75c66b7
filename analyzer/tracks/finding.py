"""Finds slices, gaps and matches along tracks, and the totals of a span of time."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.attributed_time import attributed_in
from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.intervals import covered_until
from decodescope.analyzer.timing.timeline import idle_inside
from decodescope.analyzer.trace import Bools, Columns, Int64s, Intervals, rows_by
from decodescope.analyzer.tracks.build import Tracks
from decodescope.analyzer.tracks.track import Track


@dataclass(frozen=True, slots=True, eq=False)
class Matches(Columns):
    """Slices in order of their start: their track's place, and which slice of it."""

    start_ns: Int64s
    track: Int64s
    slice: Int64s

    def step(self, at: tuple[int, int], backwards: bool) -> int | None:
        """The next match after (`at` ns, track), or the one before it; after the last the first."""
        if not len(self):
            return None
        at_ns, track = at
        first, after = self.start_ns.searchsorted((at_ns, at_ns + 1)).tolist()
        side: Literal["left", "right"] = "left" if backwards else "right"
        place = first + int(self.track[first:after].searchsorted(track, side=side)) - backwards
        return int(place % len(self))


def find_labels(tracks: Tracks, labels: Bools) -> Matches:
    """The slices of all tracks whose label is one of `labels` (one for each of `Tracks.names`),
    once each: not in the tracks of parts."""
    matches = []
    for place, track in enumerate(tracks.tracks):
        if track.key.kind == "part":
            continue
        slice_indices = np.flatnonzero(track.named(labels))
        matches.append(
            Matches(
                track.slices.start_ns[slice_indices],
                np.full_like(slice_indices, place),
                slice_indices,
            )
        )
    together = Matches.concatenate(matches)
    return together.take(np.lexsort((together.track, together.start_ns)))


def inside_range(tracks: Tracks, path: str) -> list[Bools]:
    """For each track, which of its slices are inside the ranges with this path: their ops, the gaps
    that these end and their interruptions, the calls that launched them, and the runs of the ranges
    themselves. The path may be folded."""
    analysis = tracks.analysis
    ranges, trace = analysis.ranges, analysis.trace
    nodes = np.zeros(len(ranges.paths) + 1, dtype=np.bool_)
    nodes[:-1] = ranges.nodes_within(path)
    ops, calls = nodes[ranges.op_node], np.zeros(len(trace.calls) + 1, dtype=np.bool_)
    calls[analysis.launches.call] = nodes[ranges.call_node]
    of_kind = {
        "stream": ops,
        "part": ops,
        "overlap": np.zeros(len(trace.ops), dtype=np.bool_),
        "wait": ops,
        "gap": ops[analysis.gaps.next],
        "range": nodes,
        "host": np.append(calls[:-1], np.zeros(len(trace.cpu_ops), dtype=np.bool_)),
        "interruption": np.array(
            [ops[interruption.op] for interruption in analysis.interruptions], dtype=np.bool_
        ),
        "host_range": np.zeros(len(trace.ranges), dtype=np.bool_),
    }
    return [of_kind[track.key.kind][track.slices.row] for track in tracks.tracks]


def following(track: Track, at_ns: int, backwards: bool = False) -> int | None:
    """The first slice that starts after `at_ns`, or the last one that starts before it."""
    starts_ns = track.slices.start_ns
    side: Literal["left", "right"] = "left" if backwards else "right"
    place = int(starts_ns.searchsorted(at_ns, side=side)) - backwards
    return place if 0 <= place < len(track.slices) else None


def next_gap(gaps: Gaps, after_ns: int, least_ns: int, device: int | None = None) -> int | None:
    """The first gap that starts after `after_ns` and is at least `least_ns` long, on any device or
    on one; after the last the first. None if no gap is that long."""
    long = gaps.length_ns >= least_ns
    if device is not None:
        long &= gaps.device == device
    rows = np.flatnonzero(long)
    if not len(rows):
        return None
    rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    place = int(np.searchsorted(gaps.start_ns[rows], after_ns, side="right"))
    return int(rows[place % len(rows)])


def nth_largest_gap(gaps: Gaps, after: int | None, device: int | None = None) -> int | None:
    """The longest gap, on any device or on one; after gap `after` the one that is next in length
    (then in time), and after the shortest the longest again. None without gaps."""
    rows = np.arange(len(gaps)) if device is None else np.flatnonzero(gaps.device == device)
    if not len(rows):
        return None
    rows = rows[np.lexsort((gaps.start_ns[rows], -gaps.length_ns[rows]))]
    known = np.flatnonzero(rows == after) if after is not None else rows[:0]
    return int(rows[(int(known[0]) + 1) % len(rows) if len(known) else 0])


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """One device in a span. `idle_ns` are (class, ns) of the gaps inside, the longest first;
    `before_or_after_ns` is the time before the device's first op and after its last one. With the
    busy time they add up to the span."""

    label: int | str
    ops: int
    busy_ns: int
    idle_ns: tuple[tuple[str, int], ...]
    before_or_after_ns: int


@dataclass(frozen=True, slots=True)
class SpanTotals:
    """A span of time of all devices. `launch_calls` began in it; `kernels` are (name, ops,
    attributed ns inside it), the longest first."""

    start_ns: int
    end_ns: int
    devices: tuple[DeviceTotals, ...]
    launch_calls: int
    kernels: tuple[tuple[str, int, int], ...]

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def span_totals(analysis: Analysis, start_ns: int, end_ns: int) -> SpanTotals:
    """The totals of [start, end): O(n). An op counts if it ran for some of the time in it."""
    trace = analysis.trace
    begun = int(trace.ops.start_ns.searchsorted(end_ns, side="left"))
    inside = np.flatnonzero(trace.ops.end_ns[:begun] > start_ns)
    ops, span = trace.ops.take(inside), Intervals(np.array([start_ns]), np.array([end_ns]))
    attributed_ns = np.zeros(len(inside), dtype=np.int64)
    for of_device in rows_by(ops.device).values():
        attributed_ns[of_device] = attributed_in(trace, inside[of_device], span)
    names, name = np.unique(ops.name, return_inverse=True)
    counts = np.bincount(name, minlength=len(names)).tolist()
    times = np.zeros(len(names), dtype=np.int64)
    np.add.at(times, name, attributed_ns)
    kernels = zip(
        (trace.names[name_index] for name_index in names), counts, times.tolist(), strict=True
    )
    called_ns = trace.calls.start_ns[analysis.launches.call]
    launched = np.searchsorted(called_ns, (start_ns, end_ns), side="left")
    count = {device: len(rows) for device, rows in rows_by(ops.device).items()}
    return SpanTotals(
        start_ns=start_ns,
        end_ns=end_ns,
        devices=tuple(
            _device_totals(analysis, device, count.get(device, 0), (start_ns, end_ns))
            for device in analysis.busy
        ),
        launch_calls=int(launched[1] - launched[0]),
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel[2], kernel[0]))),
    )


def _device_totals(
    analysis: Analysis, device: int, ops: int, span: tuple[int, int]
) -> DeviceTotals:
    covered = covered_until(analysis.busy[device], np.array(span, dtype=np.int64))
    busy_ns = int(covered[1] - covered[0])
    bounds = np.array(span, dtype=np.int64).reshape(2, 1)
    idle_ns = idle_inside(analysis.idle_of((device,)), Intervals(*bounds))[0].tolist()
    by_class = [(name, ns) for name, ns in zip(GAP_CLASSES, idle_ns, strict=True) if ns]
    return DeviceTotals(
        label=analysis.trace.device_label(device),
        ops=ops,
        busy_ns=busy_ns,
        idle_ns=tuple(sorted(by_class, key=lambda class_ns: -class_ns[1])),
        before_or_after_ns=span[1] - span[0] - busy_ns - sum(idle_ns),
    )
