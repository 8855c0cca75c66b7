"""Writes an analysed trace as Chrome trace JSON for Perfetto and chrome://tracing.

The file keeps Kineto's categories and arguments, but no Python frames, so decodescope reads it back
with the same figures. Times start at 0 because viewers read large times as floats;
`baseTimeNanoseconds` holds the offset. Viewers read the slices of one track as a call stack: they
may nest, but two that overlap partially are dropped or mangled, so such a slice goes to another
track.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from decodescope.analyzer.chrome.devices import device_events, gap_pieces, tracks_by_stream
from decodescope.analyzer.chrome.events import EventText, known_args, rows_of
from decodescope.analyzer.io.files import replacing_stream
from decodescope.analyzer.readers.kineto.operator_work import WORK_KEY, work_rows
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.graph_reference import CAPTURE_KEY, REFERENCE_KEY
from decodescope.analyzer.text.formatting import weights_note
from decodescope.analyzer.timing.intervals import first_fit
from decodescope.analyzer.trace import HostEvents, Int64s, Trace, grouped, rows_by
from decodescope.analyzer.vocabulary.words import device_words

_HOST_CATEGORIES = ("user_annotation", "cpu_op", "cuda_runtime")
_FIRST_FREE_PID = 10_000_000
_EVENTS_PER_WRITE = 4096


def export_chrome(analysis: Analysis, path: Path | str) -> None:
    """Write `path` (.json, or .json.gz compressed), whole or not at all.

    Tracks: host threads with ranges, operators and API calls; the profiler's own pauses; each
    stream of each device, below the ranges of its graph replays and the layers and roles that were
    inferred from names, and with extra tracks for ops that overlap on it; the gaps of each device
    with their classes, its interruptions, and its waiting for others; counters of queue depth
    and busy time. Arrows go from launch calls to their ops.

    Raises:
        InputError: the file cannot be written.
    """
    trace = analysis.trace
    groups = (trace.ops, trace.ranges, trace.cpu_ops, trace.calls, trace.overhead)
    origin_ns = min((int(group.start_ns[0]) for group in groups if len(group)), default=0)
    events = _events(analysis, EventText(trace.names, origin_ns))
    with replacing_stream(Path(path)) as file:
        file.write(_head(trace, origin_ns))
        separator = b"\n"
        while piece := ",\n".join(islice(events, _EVENTS_PER_WRITE)):
            file.write(separator + piece.encode())
            separator = b",\n"
        file.write(b"\n]}\n")


def _head(trace: Trace, origin_ns: int) -> bytes:
    labels = trace.device_labels
    names = [
        (id_, f"{labels.get(id_, '')} {name}".strip())
        for id_, name in sorted(trace.device_names.items())
    ]
    head: dict[str, object] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.base_ns + origin_ns,
        "deviceProperties": [{"id": id_, "name": name} for id_, name in names if id_ >= 0],
    }
    if trace.capture is not None:
        head[CAPTURE_KEY] = trace.capture
    if trace.reference is not None:
        head[REFERENCE_KEY] = trace.reference
    if len(trace.work):
        head[WORK_KEY] = work_rows(trace.work)
    return msgspec.json.encode(head)[:-1] + b',"traceEvents":['


def _events(analysis: Analysis, text: EventText) -> Iterator[str]:
    trace, waits = analysis.trace, analysis.op_waits()
    groups = (trace.ranges, trace.cpu_ops, trace.calls)
    drawn = as_drawn(HostEvents.concatenate(groups))
    yield from _host_events(text, drawn, np.repeat(np.arange(3), [len(group) for group in groups]))
    pid_base = max(_FIRST_FREE_PID, int(drawn.pid.max(initial=0)) + 3)
    yield from _pauses(trace, text, pid_base - 2)
    pieces = gap_pieces(analysis)
    pieces_of = rows_by(analysis.gaps.device[pieces.gap])
    ops_of = rows_by(trace.ops.device)
    for order, (device, device_ops) in enumerate(ops_of.items()):
        pid = pid_base + device
        yield text.process(pid, _process_name(trace, device), order - len(ops_of))
        own = pieces.take(pieces_of.get(device, device_ops[:0]))
        yield from device_events(analysis, text, device_ops, own, pid, waits)
    if not trace.on_cpu:
        calls = drawn.take(slice(len(drawn) - len(trace.calls), None))
        yield from _arrows(trace, text, calls, pid_base)


def _process_name(trace: Trace, device: int) -> str:
    """The device, and the model and variant if known."""
    name = trace.device_names.get(device, "")
    own = device_words(trace.device_label(device))
    label = f"device: {own} {name}" if trace.on_cpu else f"{own} {name}".strip()
    capture = trace.capture
    if capture is None:
        return label
    model = f"{capture.model} {weights_note(capture.weights)}".rstrip()
    return f"{label}, {model}, {capture.variant}"


def _host_events(text: EventText, events: HostEvents, category: Int64s) -> Iterator[str]:
    """The slices of all host threads; `category` indexes `_HOST_CATEGORIES`. Outer slices precede
    inner ones that start at the same time: viewers nest slices of one start in the order of the
    file."""
    for pid in sorted(set(events.pid.tolist())):
        yield text.process(pid, f"host {pid}", 0)
    order = np.lexsort((category, -events.end_ns, events.start_ns, events.tid, events.pid))
    columns = (
        *(category, events.name, events.pid, events.tid, events.start_ns, events.end_ns),
        *(events.correlation, events.external_id),
    )
    for kind, name, pid, tid, start, end, correlation, external in rows_of(columns, order):
        args = known_args({"correlation": correlation, "External id": external})
        yield text.slice(_HOST_CATEGORIES[kind], text.name(name), pid, tid, start, end, args)


def _pauses(trace: Trace, text: EventText, pid: int) -> Iterator[str]:
    """The profiler's own pauses, which belong to no thread: those that overlap get tracks of their
    own."""
    pauses = trace.overhead
    if not len(pauses):
        return
    yield text.process(pid, "profiler pauses", 0)
    order = np.lexsort((-pauses.end_ns, pauses.start_ns))
    track = first_fit(pauses.start_ns[order], pauses.end_ns[order], may_nest=True)
    columns = (pauses.name, pauses.start_ns, pauses.end_ns)
    rows = zip(track.tolist(), rows_of(columns, order), strict=True)
    for tid, (name, start, end) in sorted(rows, key=lambda row: row[0]):
        yield text.slice("overhead", text.name(name), pid, tid + 1, start, end, {})


def _arrows(trace: Trace, text: EventText, calls: HostEvents, pid_base: int) -> Iterator[str]:
    ops = trace.ops
    for device, device_ops in rows_by(ops.device).items():
        for stream in tracks_by_stream(trace, device_ops):
            linked = (ops.launch[stream.ops] >= 0).nonzero()[0]
            targets = stream.ops[linked]
            tails = rows_of((calls.pid, calls.tid, calls.start_ns), ops.launch[targets])
            heads = rows_of((stream.tracks, ops.start_ns[stream.ops]), linked)
            for op, tail, (track, start) in zip(targets.tolist(), tails, heads, strict=True):
                yield text.arrow(op + 1, tail, (pid_base + device, track, start))


_MAX_NUMBER = 1 << 31


def as_drawn(events: HostEvents) -> HostEvents:
    """The events, in any order, with the process and thread numbers under which they are drawn.

    An event keeps its process and thread, with two exceptions. Numbers that viewers do not accept
    (negative ones, which represent text, and those of 32 bits and more) become unused ones. An
    event that partially overlaps another one of its thread gets an unused thread number.
    """
    pid, tid = _usable(events.pid), _usable(events.tid)
    drawn = tid.copy()
    free = int(tid.max(initial=0)) + 1
    for thread_events in grouped(np.lexsort((-events.end_ns, events.start_ns)), pid, tid):
        track = first_fit(
            events.start_ns[thread_events], events.end_ns[thread_events], may_nest=True
        )
        moved = track > 0
        drawn[thread_events[moved]] = free - 1 + track[moved]
        free += int(track.max(initial=0))
    return replace(events, pid=pid, tid=drawn)


def _usable(numbers: Int64s) -> Int64s:
    usable = (numbers >= 0) & (numbers < _MAX_NUMBER)
    free = int(numbers[usable].max(initial=0)) + 1
    _, others = np.unique(numbers[~usable], return_inverse=True)
    renumbered = numbers.copy()
    renumbered[~usable] = free + others
    return renumbered
