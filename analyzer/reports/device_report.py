"""Each device and each of its streams: busy, idle and overlap time, gaps, communication; and the
interruptions of the devices."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.attribution.range_tree import host_activity
from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.reports.distributions import total_of
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    DeviceReport,
    GapReport,
    GapTotal,
    StreamReport,
)
from decodescope.analyzer.schema.step_report import InterruptionReport
from decodescope.analyzer.timing.attributed_time import begins_in_order
from decodescope.analyzer.timing.gaps import HOST_WAIT, HOST_WAIT_LABELS, GapParts
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.intervals import overlapped, stretches, union
from decodescope.analyzer.timing.launches import launching_thread
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import (
    GRAPH,
    MEMCPY,
    MEMSET,
    Bools,
    GpuOps,
    Int64s,
    Trace,
    grouped,
    rows_by,
)

LARGEST_GAPS = 10


def device_reports(timeline: Timeline) -> tuple[DeviceReport, ...]:
    return tuple(
        _device_report(timeline, device, ops, np.arange(*timeline.gaps_of(device)))
        for device, ops in rows_by(timeline.trace.ops.device).items()
    )


def _device_report(
    timeline: Timeline, device: int, op_rows: Int64s, gap_rows: Int64s
) -> DeviceReport:
    trace, busy = timeline.trace, timeline.busy[device]
    kind, attributed_ns = trace.ops.kind[op_rows], timeline.attributed_ns[op_rows]
    window_ns = int(busy.end_ns[-1] - busy.start_ns[0])
    floor_ns = timeline.floors_ns[device]
    measured = trace.capture is not None and trace.capture.kernel_floor_ns is not None
    by_kind, communication_ns, exposed_ns = _communication(trace, trace.ops.take(op_rows))
    streams = _stream_reports(timeline, op_rows, gap_rows)
    idle: StreamReport | IdleTotals = (
        streams[0] if len(streams) == 1 else idle_totals(timeline, gap_rows)
    )
    return DeviceReport(
        device=trace.device_label(device),
        name=trace.device_names.get(device, ""),
        gpu_ops=len(op_rows),
        kernels=int(np.count_nonzero(kind == trace.kernel_kind)),
        window_ns=window_ns,
        busy_ns=busy.busy_ns,
        idle_ns=window_ns - busy.busy_ns,
        overlap_ns=sum(stream.overlap_ns for stream in streams),
        gaps=idle.gaps,
        host_wait=idle.host_wait,
        kernel_floor_ns=floor_ns,
        kernel_floor_estimated=floor_ns is not None and not measured,
        all_gaps=idle.all_gaps,
        streams=streams,
        communication_ns=communication_ns,
        exposed_communication_ns=exposed_ns,
        communication=by_kind,
        copies_attributed_ns=int(attributed_ns[(kind == MEMCPY) | (kind == MEMSET)].sum()),
        graphs_attributed_ns=int(attributed_ns[kind == GRAPH].sum()),
    )


def _stream_reports(
    timeline: Timeline, op_rows: Int64s, gap_rows: Int64s
) -> tuple[StreamReport, ...]:
    """The streams of the ops `op_rows`, by number; `gap_rows` are the gaps of the device."""
    ops = timeline.trace.ops
    ended_by = rows_by(ops.stream[timeline.gaps.next[gap_rows]])
    none = np.zeros(0, dtype=np.int64)
    reports = []
    for stream_rows in grouped(op_rows, ops.stream):
        begin, end = ops.start_ns[stream_rows], ops.end_ns[stream_rows]
        stream = int(ops.stream[stream_rows[0]])
        reports.append(
            StreamReport(
                stream=stream,
                gpu_ops=len(stream_rows),
                busy_ns=union(begin, end).busy_ns,
                overlap_ns=int(overlapped(begin, end).length_ns.sum()),
                **idle_totals(timeline, gap_rows[ended_by.get(stream, none)])._asdict(),
            )
        )
    return tuple(reports)


def _communication(trace: Trace, ops: GpuOps) -> tuple[dict[str, int], int, int]:
    """The communication among `ops`, those of one device sorted by start, in ns: the union of the
    ops of each kind, the longest first; that of all of them; and its exposed part, which is the
    union of all ops - that of the ops that do not communicate. An op begins when those before it on
    its stream have ended."""
    used, place = np.unique(ops.name, return_inverse=True)
    kinds = [kernel_meaning(trace.names[name]).communication for name in used]
    if not any(kinds):
        return {}, 0, 0
    begin_ns = begins_in_order(ops, ops.stream)
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, end_ns = begin_ns[order], ops.end_ns[order]
    kind = np.array([kind or "" for kind in kinds])[place[order]]

    def busy_ns(chosen: Bools) -> int:
        return union(begin_ns[chosen], end_ns[chosen]).busy_ns

    by_kind = {name: busy_ns(kind == name) for name in dict.fromkeys(kinds) if name}
    longest_first = dict(sorted(by_kind.items(), key=lambda item: (-item[1], item[0])))
    exposed_ns = union(begin_ns, end_ns).busy_ns - busy_ns(kind == "")
    return longest_first, busy_ns(kind != ""), exposed_ns


def totals_by_kind(parts: GapParts, names: tuple[str, ...]) -> dict[str, GapTotal]:
    """The total of the parts of each kind, in the order of `names`, which the kinds index."""
    lengths_ns = parts.length_ns
    return {name: total_of(lengths_ns[parts.kind == index]) for index, name in enumerate(names)}


def idle_by_name(idle_ns: Int64s, names: tuple[str, ...] = GAP_CLASSES) -> dict[str, int]:
    """The idle times that are not 0, by name; `idle_ns` has one for each of `names`."""
    return {name: ns for name, ns in zip(names, idle_ns.tolist(), strict=True) if ns}


def largest_gaps(timeline: Timeline, ranges: Ranges) -> tuple[GapReport, ...]:
    """The `LARGEST_GAPS` longest gaps, longest first; ties in order of device and start."""
    order = np.argsort(-timeline.gaps.length_ns, kind="stable")[:LARGEST_GAPS]
    return tuple(gap_report(timeline, ranges, index) for index in order.tolist())


class IdleTotals(NamedTuple):
    """Some gaps: whole, their parts by class, and the pieces of their host_wait by label."""

    all_gaps: GapTotal
    gaps: dict[str, GapTotal]
    host_wait: dict[str, GapTotal]


def idle_totals(timeline: Timeline, chosen: Int64s) -> IdleTotals:
    """The totals of the gaps in the rows `chosen`, which are in order."""
    parts = timeline.parts.take(rows_within(timeline.parts.gap, chosen))
    waits = timeline.host_waits.take(rows_within(timeline.host_waits.gap, chosen))
    return IdleTotals(
        total_of(timeline.gaps.length_ns[chosen]),
        totals_by_kind(parts, GAP_CLASSES),
        totals_by_kind(waits, HOST_WAIT_LABELS),
    )


def rows_within(gap: Int64s, chosen: Int64s) -> Int64s:
    """The rows of the sorted column `gap` whose value is one of `chosen`, which are sorted too."""
    first = np.searchsorted(gap, chosen, side="left")
    return stretches(first, np.searchsorted(gap, chosen, side="right") - first)[0]


def gap_report(timeline: Timeline, ranges: Ranges, index: int) -> GapReport:
    """Everything about the gap in row `index` of `timeline.gaps`; `host` is the activity of the
    launching thread halfway through the longest part."""
    trace, gaps = timeline.trace, timeline.gaps
    device, start = int(gaps.device[index]), int(gaps.start_ns[index])
    call, ended_by = int(gaps.call[index]), int(gaps.next[index])
    step, node = int(timeline.steps.op_step[ended_by]), int(ranges.op_node[ended_by])
    parts = timeline.parts.of_gaps(index, index + 1)
    waits = timeline.host_waits.of_gaps(index, index + 1)
    longest = int(parts.length_ns.argmax())
    waited_ns = _sums(waits, HOST_WAIT_LABELS)
    is_wait = parts.kind[longest] == HOST_WAIT
    if trace.on_cpu:
        thread: tuple[int, int] | None = (trace.cpu_pid, int(trace.ops.stream[ended_by]))
    else:
        thread = launching_thread(trace, timeline.launches, call)
    middle_ns = int(parts.start_ns[longest] + parts.length_ns[longest] // 2)
    return GapReport(
        device=trace.device_label(device),
        at_ns=start - int(timeline.busy[device].start_ns[0]),
        length_ns=int(gaps.end_ns[index]) - start,
        gap_class=GAP_CLASSES[parts.kind[longest]],
        label=HOST_WAIT_LABELS[waited_ns.argmax()] if is_wait else None,
        prev=trace.names[trace.ops.name[gaps.prev[index]]],
        next=trace.names[trace.ops.name[ended_by]],
        call=trace.names[trace.calls.name[call]] if call >= 0 else None,
        stream=int(trace.ops.stream[ended_by]),
        step=step if step >= 0 else None,
        range=ranges.paths[node] if node >= 0 else None,
        host=None if thread is None else host_activity(trace, middle_ns, *thread),
        parts=idle_by_name(_sums(parts, GAP_CLASSES)),
        host_wait=idle_by_name(waited_ns, HOST_WAIT_LABELS),
    )


def _sums(parts: GapParts, names: tuple[str, ...]) -> Int64s:
    sums = np.zeros(len(names), dtype=np.int64)
    np.add.at(sums, parts.kind, parts.length_ns)
    return sums


def interruption_reports(
    timeline: Timeline, interruptions: Sequence[Interruption]
) -> tuple[InterruptionReport, ...]:
    """Each interruption, in order of time; ties in order of device."""
    trace, step = timeline.trace, timeline.steps.op_step
    return tuple(
        InterruptionReport(
            at_ns=interruption.start_ns - int(timeline.busy[interruption.device].start_ns[0]),
            ns=interruption.length_ns,
            call=trace.names[trace.calls.name[interruption.call]]
            if interruption.call >= 0
            else None,
            cause=interruption.cause,
            evidence=interruption.evidence,
            device=trace.device_label(interruption.device),
            step=int(step[interruption.op]) if step[interruption.op] >= 0 else None,
        )
        for interruption in sorted(interruptions, key=attrgetter("start_ns", "device"))
    )
