"""The tracks of one device in a Chrome trace: ops of its streams, waits, gaps, counters; and above
the ops the ranges of graph replays, which the host never opened, and the layers and roles that were
inferred from the names of kernels.

A slice of a range covers consecutive ops of one path on one stream, from the first start to the
last end. An op that starts before the previous one ended cuts the ranges of that one short, so that
slices always nest; a range that is cut to nothing has no slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.attribution.replays import CONFIDENCES, EXACT
from decodescope.analyzer.chrome.events import EventText, known_args, rows_of
from decodescope.analyzer.collectives.waits import OpWaits
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.kernel_report import LaunchShape
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.structure.step_structure import BY_NAME, KNOWN_BY, NO_LAYER, UNKNOWN_ROLE
from decodescope.analyzer.timing.gaps import HOST_WAIT, HOST_WAIT_LABELS, GapParts
from decodescope.analyzer.timing.intervals import depth_changes, first_fit
from decodescope.analyzer.timing.launches import times_in_queue
from decodescope.analyzer.trace import Bools, Int64s, Intervals, Trace, grouped
from decodescope.analyzer.vocabulary.words import device_words

_NO_GROUP = -1


@dataclass(frozen=True, slots=True, eq=False)
class RangeSlices(Intervals):
    """Ranges around ops: the `node` of each; `confidence` is the worst of its ops' (see `Ranges`),
    or EXACT for the ranges around the launch itself; `known_by` is how the roles of its ops are
    known at worst (see `Structure`)."""

    node: Int64s
    confidence: Int64s
    known_by: Int64s


def range_slices(analysis: Analysis, ops: Int64s) -> RangeSlices:
    """The slices above those of `ops` (one stream's, by start) that attributed graph launches
    queued, or whose steps have inferred ranges; outer slices precede the inner ones.

    Consecutive ops of one group and path make a run. A group is a graph launch that was attributed,
    or what a step launched beside those.
    """
    trace, ranges, tree = analysis.trace, analysis.ranges, analysis.ranges.tree
    inferred = np.append(tree.inferred, False).astype(np.bool_)
    group, attributed = _groups(analysis, ops, inferred[ranges.op_node[ops]])
    chosen = group != _NO_GROUP
    ops, group, attributed = ops[chosen], group[chosen], attributed[chosen]
    own, by_name = ranges.op_node[ops], inferred[ranges.op_node[ops]]
    known = (ranges.reference_op[ops] >= 0) | by_name
    launched_at = np.append(ranges.call_node, NO_NODE)[analysis.launches.rows_of_ops(trace)[ops]]
    around = np.where(attributed, launched_at, _tops(tree)[own])
    node = np.where(known, own, around)
    first = _begins(group, node)
    role_known_by = np.where(by_name, analysis.structure.confidence[ops], BY_NAME)
    group, node, start_ns = group[first], node[first], trace.ops.start_ns[ops[first]]
    end_ns = np.maximum.reduceat(trace.ops.end_ns[ops], first)
    confidence = np.maximum.reduceat(np.where(known, ranges.confidence[ops], EXACT), first)
    known_by = np.maximum.reduceat(role_known_by, first)
    nodes, place = np.unique(node, return_inverse=True)
    chains = [tree.chain(path_node) for path_node in nodes.tolist()]
    # How many ranges are around the launch.
    real = np.array([np.count_nonzero(~inferred[chain]) for chain in chains], dtype=np.int64)
    depth = np.append(tree.depths, -1)
    outside = np.where(inferred[node], real[place], depth[launched_at[first]] + 1)
    slices, begin = [], []
    for level in range(max(map(len, chains), default=0)):
        of_chain = [chain[level] if level < len(chain) else NO_NODE for chain in chains]
        at_level = np.array(of_chain)[place]
        first = _begins(group, at_level)
        until_ns = np.append(start_ns[first[1:]], np.iinfo(np.int64).max)
        inside = level >= outside
        level_slices = RangeSlices(
            start_ns=start_ns[first],
            end_ns=np.minimum(np.maximum.reduceat(end_ns, first), until_ns),
            node=at_level[first],
            confidence=np.maximum.reduceat(np.where(inside, confidence, EXACT), first),
            known_by=np.maximum.reduceat(np.where(inside, known_by, BY_NAME), first),
        )
        drawn = (level_slices.node != NO_NODE) & (level_slices.length_ns > 0)
        slices.append(level_slices.take(drawn))
        begin.append(first[drawn])
    order = np.argsort(np.concatenate([np.zeros(0, dtype=np.int64), *begin]), kind="stable")
    return RangeSlices.concatenate(slices).take(order)


def slice_args(analysis: Analysis, node: int, confidence: int, known_by: int) -> dict[str, object]:
    """The arguments of a slice; an inferred one also has its source and its role."""
    tree, name = analysis.ranges.tree, analysis.ranges.tree.names[node]
    args: dict[str, object] = {
        "path": analysis.ranges.paths[node],
        "confidence": CONFIDENCES[confidence],
    }
    if tree.inferred[node]:
        args["inferred from"] = "kernel names"
        if name in ROLES:
            args |= {"role": name, "role known by": KNOWN_BY[known_by]}
    return args


def op_args(analysis: Analysis, ops: Int64s) -> Iterator[dict[str, object]]:
    structure = analysis.structure
    for role, layer, known in rows_of((structure.role, structure.layer, structure.confidence), ops):
        args: dict[str, object] = {}
        if known != UNKNOWN_ROLE:
            args["role"] = ROLES[role]
        if layer != NO_LAYER:
            args["layer"] = layer
        yield args


def _begins(*keys: Int64s) -> Int64s:
    """Where stretches of equal keys begin."""
    begins = np.ones(len(keys[0]), dtype=np.bool_)
    begins[1:] = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return np.flatnonzero(begins)


def _groups(analysis: Analysis, ops: Int64s, inferred: Bools) -> tuple[Int64s, Bools]:
    """The group of each op (`_NO_GROUP`: it is not drawn), and whether that is a graph launch some
    of whose ops have a partner in the reference."""
    launch, reference_op = analysis.trace.ops.launch, analysis.ranges.reference_op
    partnered = np.zeros(len(analysis.trace.calls) + 1, dtype=np.bool_)
    partnered[launch[reference_op >= 0]] = True
    call, step = launch[ops], analysis.steps.op_step[ops]
    attributed = partnered[call]
    owner = np.where(step >= 0, _NO_GROUP - 1 - step, call)
    drawn = attributed | np.isin(owner, owner[inferred])
    return np.where(drawn, np.where(attributed, call, owner), _NO_GROUP), attributed


def _tops(tree: PathTree) -> Int64s:
    top = np.full(len(tree) + 1, NO_NODE, dtype=np.int64)
    for node, parent in enumerate(tree.parents):
        top[node] = node if parent == NO_NODE else top[parent]
    return top


_GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "gpu_graph")
_RANGE_CATEGORIES = ("model_range", "inferred_range")
_GAP_TRACK, _INTERRUPTION_TRACK = 1, 2
_FIRST_STREAM_TRACK = 10
_PIECE_NAMES = (*GAP_CLASSES, *(f"host_wait: {label}" for label in HOST_WAIT_LABELS))


def wait_slices(
    trace: Trace, waits: OpWaits, text: EventText, pid: int, first_track: int
) -> Iterator[str]:
    """A slice for the part of each op of one device in which it waited, with the device that it
    waited for. Those that overlap get tracks of their own, from `first_track` on."""
    waits = waits.take(waits.transfer_start_ns > trace.ops.start_ns[waits.op])
    start_ns, end_ns = trace.ops.start_ns[waits.op], waits.transfer_start_ns
    order = np.argsort(start_ns, kind="stable")
    tracks = first_track + first_fit(start_ns[order], end_ns[order])
    for track in np.unique(tracks).tolist():
        yield text.thread(pid, track, "wait for other GPUs")
    columns = (
        start_ns,
        waits.transfer_start_ns,
        waits.last,
        waits.members,
        trace.ops.name[waits.op],
    )
    for track, (start, end, last, members, name) in zip(
        tracks.tolist(), rows_of(columns, order), strict=True
    ):
        whom = device_words(trace.device_label(last)) if last >= 0 else "several"
        args: dict[str, object] = {"collective": trace.names[name], "GPUs": members}
        yield text.slice(
            "collective_wait", text.quoted(f"waits for {whom}"), pid, track, start, end, args
        )


@dataclass(frozen=True, slots=True, eq=False)
class StreamTracks:
    """One stream of a device: its ops and the track of each. The track `above` the others is for
    the model's ranges."""

    stream: int
    above: int
    ops: Int64s
    tracks: Int64s


def tracks_by_stream(trace: Trace, of_device: Int64s) -> Iterator[StreamTracks]:
    """The streams of a device, by number; `of_device` are its ops."""
    ops = trace.ops
    above = _FIRST_STREAM_TRACK
    for stream_ops in grouped(of_device, ops.stream):
        stream = int(ops.stream[stream_ops[0]])
        tracks = first_fit(ops.start_ns[stream_ops], ops.end_ns[stream_ops]) + above + 1
        yield StreamTracks(stream, above, stream_ops, tracks)
        above = int(tracks.max()) + 1


def device_events(
    analysis: Analysis,
    text: EventText,
    device_ops: Int64s,
    pieces: GapParts,
    pid: int,
    waits: OpWaits | None,
) -> Iterator[str]:
    """Every event of the device with the ops `device_ops` and these pieces of gaps (`gap_pieces`).

    A CPU capture has only gaps and busy time: its operators are drawn on their host threads."""
    trace = analysis.trace
    device = int(trace.ops.device[device_ops[0]])
    yield text.thread(pid, _GAP_TRACK, "idle gaps")
    yield from _gap_slices(analysis, text, pieces, pid)
    yield from _interruption_slices(analysis, text, device, pid)
    busy = analysis.busy[device]
    for start, end in rows_of((busy.start_ns, busy.end_ns)):
        yield text.counter("busy", pid, start, 1)
        yield text.counter("busy", pid, end, 0)
    if trace.on_cpu:
        return
    below = _FIRST_STREAM_TRACK
    for stream in tracks_by_stream(trace, device_ops):
        yield from _range_slices(analysis, text, stream, pid)
        yield from _op_slices(analysis, text, stream, device, pid)
        below = int(stream.tracks.max()) + 1
    if waits is not None:
        own = waits.take(trace.ops.device[waits.op] == device)
        yield from wait_slices(trace, own, text, pid, below)
    for at_ns, depth in rows_of(depth_changes(*times_in_queue(trace, device_ops))):
        yield text.counter("queue depth", pid, at_ns, depth)


def _range_slices(
    analysis: Analysis, text: EventText, stream: StreamTracks, pid: int
) -> Iterator[str]:
    slices, tree = range_slices(analysis, stream.ops), analysis.ranges.tree
    if len(slices):
        inferred = any(tree.inferred[node] for node in slices.node.tolist())
        how = "inferred from kernel names" if inferred else "reconstructed"
        yield text.thread(pid, stream.above, f"stream {stream.stream} model ranges ({how})")
    columns = (slices.start_ns, slices.end_ns, slices.node, slices.confidence, slices.known_by)
    for start, end, node, *known in rows_of(columns):
        category, name = _RANGE_CATEGORIES[tree.inferred[node]], text.quoted(tree.names[node])
        args = slice_args(analysis, node, *known)
        yield text.slice(category, name, pid, stream.above, start, end, args)


def _op_slices(
    analysis: Analysis, text: EventText, stream: StreamTracks, device: int, pid: int
) -> Iterator[str]:
    ops, ranges, stream_ops = analysis.trace.ops, analysis.ranges, stream.ops
    for track in sorted(set(stream.tracks.tolist())):
        kind = "overlapping on it" if track > stream.tracks[0] else ""
        yield text.thread(pid, track, f"stream {stream.stream} {kind}".strip())
    shapes = [_shape_args(shape) for shape in analysis.trace.shapes]
    order = np.lexsort((-ops.end_ns[stream_ops], ops.start_ns[stream_ops]))
    columns = (
        *(ops.kind, ops.name, ops.start_ns, ops.end_ns, ops.correlation, ops.external_id),
        *(ops.graph_id, ops.graph_node_id, ops.shape, ranges.op_node, ranges.confidence),
    )
    rows = rows_of((stream.tracks[order], *(column[stream_ops[order]] for column in columns)))
    for row, part in zip(rows, op_args(analysis, stream_ops[order]), strict=True):
        track, kind_, name, start, end, correlation, external, graph, in_graph, *more = row
        shape, node, sure = more
        ids = {"correlation": correlation, "External id": external}
        ids |= {"graph id": graph, "graph node id": in_graph}
        args = {**known_args(ids), "device": device, "stream": stream.stream}
        if shape >= 0:
            args |= shapes[shape]
        if node != NO_NODE:
            args |= {"range": ranges.paths[node], "confidence": CONFIDENCES[sure]}
        args |= part
        yield text.slice(_GPU_CATEGORIES[kind_], text.name(name), pid, track, start, end, args)


def _shape_args(shape: LaunchShape) -> dict[str, object]:
    args = {
        "grid": shape.grid,
        "block": shape.block,
        "registers per thread": shape.registers_per_thread,
        "shared memory": shape.shared_memory_bytes,
    }
    return {key: value for key, value in args.items() if value is not None}


def _gap_slices(analysis: Analysis, text: EventText, pieces: GapParts, pid: int) -> Iterator[str]:
    trace, gaps, ranges = analysis.trace, analysis.gaps, analysis.ranges
    rows = pieces.gap
    whole = (gaps.length_ns[rows], gaps.prev[rows], gaps.next[rows], gaps.call[rows])
    columns = (pieces.kind, pieces.start_ns, pieces.end_ns, *whole)
    for kind, start, end, whole_ns, prev, following, call in rows_of(columns):
        args: dict[str, object] = {
            "length_ns": end - start,
            "gap_ns": whole_ns,
            "prev": trace.names[trace.ops.name[prev]],
            "next": trace.names[trace.ops.name[following]],
        }
        if call >= 0:
            args["call"] = trace.names[trace.calls.name[call]]
        if ranges.op_node[following] != NO_NODE:
            args["range"] = ranges.paths[ranges.op_node[following]]
        name = text.quoted(_PIECE_NAMES[kind])
        yield text.slice("gap", name, pid, _GAP_TRACK, start, end, args)


def _interruption_slices(
    analysis: Analysis, text: EventText, device: int, pid: int
) -> Iterator[str]:
    """The interruptions of the device; those that overlap get tracks of their own."""
    trace = analysis.trace
    interruptions = sorted(
        (interruption for interruption in analysis.interruptions if interruption.device == device),
        key=lambda interruption: (interruption.start_ns, -interruption.end_ns),
    )
    if not interruptions:
        return
    spans = np.array(
        [(interruption.start_ns, interruption.end_ns) for interruption in interruptions],
        dtype=np.int64,
    )
    tracks = (_INTERRUPTION_TRACK + first_fit(*spans.T, may_nest=True)).tolist()
    for track in sorted(set(tracks)):
        yield text.thread(pid, track, "interruptions")
    on_tracks = zip(tracks, interruptions, strict=True)
    for track, interruption in sorted(on_tracks, key=itemgetter(0)):
        args: dict[str, object] = {"cause": interruption.cause, "evidence": interruption.evidence}
        if interruption.call >= 0:
            args["call"] = trace.names[trace.calls.name[interruption.call]]
        step = int(analysis.steps.op_step[interruption.op]) if interruption.op >= 0 else -1
        args |= known_args({"step": step})
        yield text.slice(
            "interruption",
            text.quoted(f"interruption: {interruption.cause.replace('_', ' ')}"),
            pid,
            track,
            interruption.start_ns,
            interruption.end_ns,
            args,
        )


def gap_pieces(analysis: Analysis) -> GapParts:
    """The parts of all gaps in order of time, host_wait cut by what the host did; `kind` indexes
    `_PIECE_NAMES`."""
    parts, waits = analysis.parts, analysis.host_waits
    pieces = GapParts.concatenate(
        [
            parts.take(parts.kind != HOST_WAIT),
            replace(waits, kind=waits.kind + np.int8(len(GAP_CLASSES))),
        ]
    )
    return pieces.take(np.argsort(pieces.start_ns, kind="stable"))
