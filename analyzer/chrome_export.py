"""Writes an analysed trace as Chrome trace JSON for Perfetto and chrome://tracing.

The file keeps Kineto's categories and arguments, so decodescope reads it back with the same
figures. Times start at 0; `baseTimeNanoseconds` holds what was taken off, since viewers read large
times as floats.
"""

import gzip
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from decodescope.analyzer.analysis import Analysis
from decodescope.analyzer.chrome_events import EventText
from decodescope.analyzer.chrome_tracks import host_tracks, separate_tracks
from decodescope.analyzer.files import replacing
from decodescope.analyzer.formatting import weights_note
from decodescope.analyzer.gaps import HOST_WAIT_LABELS
from decodescope.analyzer.operator_work import WORK_KEY, work_rows
from decodescope.analyzer.report import GAP_CLASSES
from decodescope.analyzer.timeline import depth_changes
from decodescope.analyzer.trace import HostEvents, Int64s, Trace

_GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "gpu_graph")
_FIRST_FREE_PID = 10_000_000
_GAP_TRACK = 1
_FIRST_STREAM_TRACK = 10
_GZIP_LEVEL = 6
_EVENTS_PER_WRITE = 4096


def export_chrome(analysis: Analysis, path: Path | str) -> None:
    """Write `path` (.json, or .json.gz compressed), whole or not at all.

    Tracks: host threads with ranges, operators and API calls; each stream of each device, with
    further tracks for ops that overlap on it; the gaps of each device with their classes; counters
    of queue depth and busy time. Arrows lead from launch calls to their ops.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    with replacing(target) as temporary, temporary.open("wb") as file:
        if target.suffix != ".gz":
            _write(analysis, file)
            return
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as archive:
            _write(analysis, cast(BinaryIO, archive))


def _write(analysis: Analysis, file: BinaryIO) -> None:
    trace = analysis.trace
    origin_ns = _earliest(trace)
    events = _events(analysis, EventText(trace.names, origin_ns))
    file.write(_head(trace, origin_ns))
    separator = b"\n"
    while piece := ",\n".join(islice(events, _EVENTS_PER_WRITE)):
        file.write(separator + piece.encode())
        separator = b",\n"
    file.write(b"\n]}\n")


def _head(trace: Trace, origin_ns: int) -> bytes:
    names = sorted(trace.device_names.items())
    head: dict[str, object] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.base_ns + origin_ns,
        "deviceProperties": [{"id": id_, "name": name} for id_, name in names if id_ >= 0],
    }
    if trace.capture is not None:
        head["decodescope"] = trace.capture
    if len(trace.work):
        head[WORK_KEY] = work_rows(trace.work)
    return msgspec.json.encode(head)[:-1] + b',"traceEvents":['


def _host_groups(trace: Trace) -> dict[str, HostEvents]:
    return {
        "user_annotation": trace.ranges,
        "cpu_op": trace.cpu_ops,
        "cuda_runtime": trace.calls,
    }


def _earliest(trace: Trace) -> int:
    columns = [trace.ops.start_ns, *(group.start_ns for group in _host_groups(trace).values())]
    return min((int(column[0]) for column in columns if len(column)), default=0)


def _events(analysis: Analysis, text: EventText) -> Iterator[str]:
    trace = analysis.trace
    groups = _host_groups(trace)
    tracks = host_tracks(list(groups.values()))
    host_pids = {int(pid) for group in groups.values() for pid in set(group.pid.tolist())}
    pid_base = max([_FIRST_FREE_PID, *(pid + 2 for pid in host_pids)])
    for pid in sorted(host_pids):
        yield text.process(pid, f"host {pid}", 0)
    for (category, group), tids in zip(groups.items(), tracks, strict=True):
        yield from _host_slices(text, category, group, tids)
    for order, device in enumerate(analysis.busy):
        yield from _device_events(analysis, text, device, pid_base + device, order)
    if not trace.on_cpu:
        yield from _arrows(trace, text, tracks[-1], pid_base)


def _host_slices(text: EventText, category: str, group: HostEvents, tids: Int64s) -> Iterator[str]:
    rows = zip(
        *(group.name.tolist(), group.pid.tolist(), tids.tolist()),
        *(group.start_ns.tolist(), group.end_ns.tolist()),
        *(group.correlation.tolist(), group.external_id.tolist()),
        strict=True,
    )
    for name, pid, tid, start, end, correlation, external in rows:
        args = {"correlation": correlation, "External id": external}
        yield text.slice(category, text.name(name), pid, tid, start, end, _given(args))


def _given(args: dict[str, int]) -> dict[str, int]:
    return {key: value for key, value in args.items() if value != -1}


def _device_events(
    analysis: Analysis, text: EventText, device: int, pid: int, order: int
) -> Iterator[str]:
    trace = analysis.trace
    name = trace.device_names.get(device, "")
    label = f"device: cpu {name}" if trace.on_cpu else f"GPU {device} {name}"
    yield text.process(pid, label.strip() + _model_label(trace), order - len(analysis.busy))
    yield text.thread(pid, _GAP_TRACK, "idle gaps")
    yield from _gap_slices(analysis, text, device, pid)
    busy = analysis.busy[device]
    edges = zip(busy.start_ns.tolist(), busy.end_ns.tolist(), strict=True)
    yield from chain.from_iterable(
        (text.counter("busy", pid, start, 1), text.counter("busy", pid, end, 0))
        for start, end in edges
    )
    if trace.on_cpu:
        return
    yield from _op_slices(trace, text, device, pid)
    linked = (trace.ops.device == device) & (trace.ops.launch >= 0)
    launched_ns = trace.calls.start_ns[trace.ops.launch[linked]]
    times, depths = depth_changes(launched_ns, trace.ops.start_ns[linked])
    for at_ns, depth in zip(times.tolist(), depths.tolist(), strict=True):
        yield text.counter("queue depth", pid, at_ns, depth)


def _model_label(trace: Trace) -> str:
    capture = trace.capture
    if capture is None:
        return ""
    return f", {capture.model} {weights_note(capture.weights)}".rstrip() + f", {capture.variant}"


def _op_slices(trace: Trace, text: EventText, device: int, pid: int) -> Iterator[str]:
    ops = trace.ops
    for stream, mine, tracks in _streams(trace, device):
        for track in sorted(set(tracks.tolist())):
            kind = "overlapping on it" if track > tracks[0] else ""
            yield text.thread(pid, track, f"stream {stream} {kind}".strip())
        columns = (
            *(ops.kind, ops.name, ops.start_ns, ops.end_ns, ops.correlation),
            *(ops.external_id, ops.graph_id, ops.graph_node_id),
        )
        rows = zip(tracks.tolist(), *(column[mine].tolist() for column in columns), strict=True)
        for track, kind_, name, start, end, correlation, external, graph, node in rows:
            args = _given(
                {
                    "correlation": correlation,
                    "External id": external,
                    "graph id": graph,
                    "graph node id": node,
                }
            )
            args |= {"device": device, "stream": stream}
            category = _GPU_CATEGORIES[kind_]
            yield text.slice(category, text.name(name), pid, track, start, end, args)


def _streams(trace: Trace, device: int) -> Iterator[tuple[int, Int64s, Int64s]]:
    """Each stream of a device, its ops and the track each is drawn on."""
    ops = trace.ops
    first_track = _FIRST_STREAM_TRACK
    for stream in sorted(set(ops.stream[ops.device == device].tolist())):
        mine = ((ops.device == device) & (ops.stream == stream)).nonzero()[0]
        tracks = separate_tracks(ops.start_ns[mine], ops.end_ns[mine]) + first_track
        first_track = int(tracks.max()) + 1
        yield stream, mine, tracks


def _gap_slices(analysis: Analysis, text: EventText, device: int, pid: int) -> Iterator[str]:
    trace, gaps = analysis.trace, analysis.gaps
    mine = (gaps.device == device).nonzero()[0]
    columns = (gaps.kind, gaps.label, gaps.start_ns, gaps.end_ns, gaps.prev, gaps.next, gaps.call)
    rows = zip(*(column[mine].tolist() for column in columns), strict=True)
    for kind, label, start, end, prev, following, call in rows:
        args: dict[str, object] = {
            "length_ns": end - start,
            "prev": trace.names[trace.ops.name[prev]],
            "next": trace.names[trace.ops.name[following]],
        }
        if call >= 0:
            args["call"] = trace.names[trace.calls.name[call]]
        name = GAP_CLASSES[kind]
        if label >= 0:
            name = f"{name}: {HOST_WAIT_LABELS[label]}"
        yield text.slice("gap", f'"{name}"', pid, _GAP_TRACK, start, end, args)


def _arrows(trace: Trace, text: EventText, call_tids: Int64s, pid_base: int) -> Iterator[str]:
    """One arrow for each linked op, from the start of its launch call to its own start."""
    ops, calls = trace.ops, trace.calls
    for device in sorted(set(ops.device.tolist())):
        for _, mine, tracks in _streams(trace, device):
            linked = ops.launch[mine] >= 0
            targets, call = mine[linked], ops.launch[mine[linked]]
            rows = zip(
                *(targets.tolist(), tracks[linked].tolist(), ops.start_ns[targets].tolist()),
                *(calls.pid[call].tolist(), call_tids[call].tolist()),
                calls.start_ns[call].tolist(),
                strict=True,
            )
            for op, track, start, pid, tid, called in rows:
                yield text.arrow_start(op + 1, pid, tid, called)
                yield text.arrow_end(op + 1, pid_base + device, track, start)
