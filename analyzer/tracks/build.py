"""The tracks of an analysis: host threads, ranges, streams, waits for other devices, gaps and
interruptions, of all devices on one clock; and those of one device during one step."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from decodescope.analyzer.answer.parts import WORK, op_parts
from decodescope.analyzer.collectives.waits import OpWaits
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.timing.intervals import first_fit, merged, overlapped
from decodescope.analyzer.timing.timeline import OVERLAP_SHARE, families_of
from decodescope.analyzer.trace import GpuOps, Int8s, Int64s, Intervals, Trace, rows_by
from decodescope.analyzer.tracks.host import MAX_LEVELS, HostTracks, owners
from decodescope.analyzer.tracks.track import Slices, Track, TrackKey, track_of
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS

_NUMBER = re.compile(r"\d+")
# The sub-rows of a stream.
_MAX_LANES = 4
# With more of them, there is never room for the parts of each.
_MOST_STREAMS_WITH_PARTS = 64
_Rows = TypeVar("_Rows", GpuOps, GapParts)


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """All tracks of an analysis, from top to bottom, and what they have in common.

    `names` are the trace's, then those of the range paths' nodes, then the causes of interruptions
    and which device was waited for. `world` spans everything in the trace, `home` what to look at
    first: the step with the median time (the row `home_step` of `steps`; without one the last
    step), else all ops, else everything. `steps` are the GPU spans of the steps that launched
    something, by their start, each until the next one of its thread, `step` their indices. `busy`
    is when any device was busy.
    """

    analysis: Analysis
    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    world: tuple[int, int]
    home: tuple[int, int]
    home_step: int | None
    steps: Intervals
    step: Int64s
    busy: Track
    waits: OpWaits | None

    def find(self, key: TrackKey | None) -> int | None:
        return next((place for place, track in enumerate(self.tracks) if track.key == key), None)

    def path(self, label: int) -> str | None:
        """The range path of a name in `names`, None if it is not one of a range."""
        paths, node = self.analysis.ranges.paths, label - len(self.analysis.trace.names)
        return paths[node] if 0 <= node < len(paths) else None


def find_tracks(analysis: Analysis) -> Tracks:
    """Index a whole trace: O(n log n), in a thread. Nothing on a screen needs to sort again."""
    trace, steps, waits = analysis.trace, analysis.steps, analysis.op_waits()
    busy = merged([*analysis.busy.values()]) if analysis.busy else Intervals.concatenate(())
    world = _extent(trace.ops, trace.calls, trace.cpu_ops, trace.ranges)
    launched = np.flatnonzero(steps.gpu_ops > 0)
    launched = launched[np.argsort(steps.span.start_ns[launched], kind="stable")]
    span = steps.span.take(launched)
    after_ns = span.start_ns + np.maximum(steps.time_ns[launched], span.length_ns)
    marked = Intervals(span.start_ns, np.minimum(after_ns, world[1]))
    home = _extent(trace.ops) if len(trace.ops) else world
    home_step = None
    if len(marked):
        is_median = launched == (-1 if analysis.median_step is None else analysis.median_step)
        home_step = int(is_median.argmax()) if is_median.any() else len(marked) - 1
        home = (int(marked.start_ns[home_step]), int(marked.end_ns[home_step]))
    return Tracks(
        analysis=analysis,
        tracks=tuple(_ordered(analysis, waits)),
        names=(
            *trace.names,
            *analysis.ranges.tree.names,
            *_causes(analysis),
            *_waited_for(trace, waits),
        ),
        world=world,
        home=home,
        home_step=home_step,
        steps=marked,
        step=launched,
        busy=_nameless(TrackKey("map", 0), "map", busy),
        waits=waits,
    )


def of_step(tracks: Tracks, analysis: Analysis) -> Tracks:
    """The same tracks for the analysis of one step: that is what to look at first."""
    place = tracks.step.tolist().index(analysis.median_step)
    home = (int(tracks.steps.start_ns[place]), int(tracks.steps.end_ns[place]))
    return replace(tracks, analysis=analysis, home=home, home_step=place)


def _extent(*events: Intervals) -> tuple[int, int]:
    shown = [event_table for event_table in events if len(event_table)]
    if not shown:
        return 0, 0
    start_ns = min(int(event_table.start_ns[0]) for event_table in shown)
    end_ns = max(int(event_table.end_ns.max()) for event_table in shown)
    return start_ns, end_ns


def _nameless(key: TrackKey, title: str, times: Intervals) -> Track:
    rows = np.arange(len(times))
    kind = np.zeros(len(rows), dtype=np.int8)
    return track_of(
        key, title, Slices(times.start_ns, times.end_ns, np.full_like(rows, -1), rows, kind)
    )


def _ordered(analysis: Analysis, waits: OpWaits | None) -> Iterator[Track]:
    """Device by device: the threads that launch to it, its ranges, streams with their parts,
    overlap, waiting and gaps; then the threads that launch to none."""
    trace = analysis.trace
    threads, host = owners(trace), HostTracks(trace)
    parts = op_parts(analysis, analysis.structure, np.arange(len(trace.ops))).astype(np.int8)
    with_parts = len(np.unique(trace.ops.stream)) <= _MOST_STREAMS_WITH_PARTS
    levels = _ancestors(analysis)
    for device, ops in rows_by(trace.ops.device).items():
        prefix = _prefix(trace.device_label(device)) if len(analysis.busy) > 1 else ""
        own_threads = [thread for thread, owner in threads.items() if owner == device]
        for thread in own_threads:
            name = "host" if len(own_threads) == 1 else f"cpu {thread[1] % 10_000}"
            yield from host.tracks(thread, prefix, name)
        yield from _range_tracks(analysis, levels, ops, prefix)
        for stream in stream_tracks(trace, ops, prefix, parts):
            yield from _stacked(stream)
            yield from _part_tracks(stream, prefix) if with_parts else ()
        yield from _overlap_track(analysis, device, ops, prefix)
        if waits is not None:
            yield from _wait_track(analysis, waits, device, prefix)
        yield gap_track(analysis.idle_of((device,)), device, prefix)
        yield from _interruption_track(analysis, device, prefix)
    for thread in (thread for thread, owner in threads.items() if owner is None):
        yield from host.tracks(thread, "", f"cpu {thread[1] % 10_000}")


def _prefix(label: int | str) -> str:
    """A device in few cells: "g1", "r0g1" of merged ranks."""
    if isinstance(label, int):
        return f"g{label} "
    numbers = _NUMBER.findall(label)
    return "".join(f"{mark}{number}" for mark, number in zip("rg", numbers, strict=False)) + " "


def stream_tracks(trace: Trace, ops: Int64s, prefix: str, kinds: Int8s) -> Iterator[Track]:
    """The streams of the device of `ops`, in the order of their numbers; `kinds` are those of all
    ops of the trace."""
    if not len(ops):
        return
    device = int(trace.ops.device[ops[0]])
    for stream, place in rows_by(trace.ops.stream[ops]).items():
        of_stream = trace.ops.take(ops[place])
        slices = Slices(
            of_stream.start_ns,
            of_stream.end_ns,
            of_stream.name.astype(np.int64),
            ops[place],
            kinds[ops[place]],
        )
        name = f"cpu {stream % 10_000}" if trace.on_cpu else f"str {stream}"
        yield track_of(TrackKey("stream", device, stream), prefix + name, slices)


def _stacked(stream: Track) -> Iterator[Track]:
    """The sub-rows of a stream, in which no op overlaps another, with their levels in their keys;
    then what fits into none of them, as an overlap track."""
    lane = first_fit(stream.slices.start_ns, stream.slices.end_ns, most=_MAX_LANES)
    for level in np.unique(lane).tolist() if lane.any() else ():
        slices = stream.slices.take(lane == level)
        key, title = stream.key._replace(level=level), f"  +{level}" if level else stream.title
        if level == _MAX_LANES:
            key, title = key._replace(kind="overlap"), f"  {len(slices):,} more"
            slices = replace(slices, kind=np.zeros_like(slices.kind))
        yield track_of(key, title, slices)
    if not lane.any():
        yield stream


def _part_tracks(stream: Track, prefix: str) -> list[Track]:
    """The ops of each part of the step in a stream, if it has several: the longest part first."""
    found, kinds = [], np.unique(stream.slices.kind).tolist()
    for kind in kinds if len(kinds) > 1 else ():
        key, title = TrackKey("part", *stream.key[1:3], kind), f"{PART_LETTERS[WORK[kind]]} "
        ops = stream.slices.take(stream.slices.kind == kind)
        found.append(track_of(key, prefix + title + WORK[kind], ops))
    return sorted(found, key=lambda track: -int(track.covered_ns[-1]))


def _overlap_track(analysis: Analysis, device: int, ops: Int64s, prefix: str) -> Iterator[Track]:
    """When two or more ops of the device ran at once, if that matters."""
    overlaps = overlapped(analysis.trace.ops.start_ns[ops], analysis.trace.ops.end_ns[ops])
    if int(overlaps.length_ns.sum()) > OVERLAP_SHARE * analysis.busy[device].busy_ns:
        yield _nameless(TrackKey("overlap", device), prefix + "over", overlaps)


def _waited_for(trace: Trace, waits: OpWaits | None) -> list[str]:
    """The short name of each device that was waited for, in order; -1 is several that entered last
    at once."""
    waited_devices = [] if waits is None else np.unique(waits.last).tolist()
    return [
        _prefix(trace.device_label(device)).strip() if device >= 0 else "several"
        for device in waited_devices
    ]


def _wait_track(analysis: Analysis, waits: OpWaits, device: int, prefix: str) -> Iterator[Track]:
    """When ops of the device waited for other devices, if any did."""
    trace = analysis.trace
    start_ns = trace.ops.start_ns[waits.op]
    waited = (trace.ops.device[waits.op] == device) & (waits.transfer_start_ns > start_ns)
    if not waited.any():
        return
    device_waits = waits.take(waited)
    first = len(trace.names) + len(analysis.ranges.paths) + len(_causes(analysis))
    label = first + np.unique(waits.last).searchsorted(device_waits.last)
    slices = Slices(
        start_ns[waited],
        device_waits.transfer_start_ns,
        label,
        device_waits.op,
        np.zeros(len(device_waits), dtype=np.int8),
    )
    yield track_of(TrackKey("wait", device), prefix + "wait", slices)


def gap_track(parts: GapParts, device: int, prefix: str) -> Track:
    none = np.full(len(parts), -1, dtype=np.int64)
    slices = Slices(parts.start_ns, parts.end_ns, none, parts.gap, parts.kind)
    return track_of(TrackKey("gap", device), prefix + "gaps", slices)


def _causes(analysis: Analysis) -> list[str]:
    return [
        f"interruption: {cause.replace('_', ' ')}"
        for cause in sorted({interruption.cause for interruption in analysis.interruptions})
    ]


def _interruption_track(analysis: Analysis, device: int, prefix: str) -> Iterator[Track]:
    causes = sorted({interruption.cause for interruption in analysis.interruptions})
    first = len(analysis.trace.names) + len(analysis.ranges.paths)
    columns = [
        (interruption.start_ns, interruption.end_ns, first + causes.index(interruption.cause), row)
        for row, interruption in enumerate(analysis.interruptions)
        if interruption.device == device
    ]
    if not columns:
        return
    columns.sort(key=lambda column: column[0])
    start_ns, end_ns, label, row = np.array(columns, dtype=np.int64).T
    slices = Slices(start_ns, end_ns, label, row, np.zeros(len(row), dtype=np.int8))
    yield track_of(TrackKey("interruption", device), prefix + "interr.", slices)


def _range_tracks(
    analysis: Analysis, levels: list[Int64s], ops: Int64s, prefix: str
) -> Iterator[Track]:
    """The runs of consecutive ops of one path, a track for each level of the paths.

    A run lasts from its first op until the end of its ops, or until the next run begins. A graph
    replay has no ranges on the host, so these are the ranges of the device's clock.
    """
    trace, node = analysis.trace, analysis.ranges.op_node[ops]
    columns, device = trace.ops.take(ops), int(trace.ops.device[ops[0]])
    for level, at_level in enumerate(levels):
        own = np.where(node >= 0, at_level[node], -1)
        changes = np.diff(own, prepend=-2) != 0
        changes |= np.diff(analysis.steps.op_step[ops], prepend=-2) != 0
        first = np.flatnonzero(changes)
        run = own[first]
        end_ns = np.maximum.reduceat(columns.end_ns, first)
        chosen = np.flatnonzero(run >= 0)
        run, start_ns, end_ns = run[chosen], columns.start_ns[first[chosen]], end_ns[chosen]
        end_ns[:-1] = np.minimum(end_ns[:-1], start_ns[1:])
        if not len(run):
            continue
        slices = Slices(
            start_ns, end_ns, run + len(trace.names), run, (np.arange(len(run)) % 2).astype(np.int8)
        )
        title = prefix + ("range" if level == 0 else f"  .{level}")
        yield track_of(TrackKey("range", device, 0, level), title, slices)


def _ancestors(analysis: Analysis) -> list[Int64s]:
    """For each level the ancestor of each node at it, -1 where the node is not that deep."""
    tree = analysis.ranges.tree
    parents, depths = np.array(tree.parents, dtype=np.int64), np.array(tree.depths, dtype=np.int64)
    current = np.arange(len(tree))
    levels = []
    for level in range(int(depths.max(initial=-1)), -1, -1):
        deeper = depths[current] > level
        current = np.where(deeper, parents[current], current)
        if level < MAX_LEVELS:
            levels.append(np.where(depths[current] == level, current, -1))
    return levels[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class StepTracks:
    """The streams of a device during one step and the parts of its gaps, clipped to the step, in ns
    from its first op. The step lasts `length_ns`, until the next step's first op. `device` is the
    one in reports; the labels of ops index `names`, and their kinds `FAMILIES`."""

    device: int | str
    length_ns: int
    streams: tuple[Track, ...]
    gaps: Track
    names: tuple[str, ...]

    @property
    def ops(self) -> Slices:
        """The ops of all streams, sorted by start."""
        ops = Slices.concatenate([track.slices for track in self.streams])
        return ops.take(np.argsort(ops.row))


def step_tracks(analysis: Analysis, index: int) -> StepTracks:
    """The tracks of step `index`, which launched something."""
    steps = analysis.steps
    start_ns = int(steps.span.start_ns[index])
    length_ns = int(max(steps.time_ns[index], steps.span.length_ns[index]))
    return span_tracks(analysis, int(steps.device[index]), start_ns, length_ns)


def span_tracks(analysis: Analysis, device: int, start_ns: int, length_ns: int) -> StepTracks:
    """The tracks of any span of a device, as those of a step."""
    trace = analysis.trace
    ops = _clipped(trace.ops.take(trace.ops.device == device), start_ns, length_ns)
    gaps = _clipped(analysis.idle_of((device,)), start_ns, length_ns)
    return StepTracks(
        device=trace.device_label(device),
        length_ns=length_ns,
        streams=tuple(
            stream_tracks(
                replace(trace, ops=ops), np.arange(len(ops)), "", families_of(trace.names, ops)
            )
        ),
        gaps=gap_track(gaps, device, ""),
        names=trace.names,
    )


def _clipped(rows: _Rows, start_ns: int, length_ns: int) -> _Rows:
    seen = rows.take((rows.start_ns < start_ns + length_ns) & (rows.end_ns > start_ns))
    return replace(
        seen,
        start_ns=np.clip(seen.start_ns - start_ns, 0, length_ns),
        end_ns=np.clip(seen.end_ns - start_ns, 0, length_ns),
    )
