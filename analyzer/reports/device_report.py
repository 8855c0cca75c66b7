"""Each device and each of its streams: busy, idle and overlap time, gaps by class, communication.

Which kernels communicate is in `names/roles.toml`.
"""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rule_files import kernel_meaning
from decodescope.analyzer.reports.gap_report import idle_totals
from decodescope.analyzer.schema.report import DeviceReport, StreamReport
from decodescope.analyzer.timing.intervals import overlapped, union
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import (
    GRAPH,
    MEMCPY,
    MEMSET,
    GpuOps,
    Int64s,
    Trace,
    grouped,
    rows_by,
)


def device_reports(timeline: Timeline) -> tuple[DeviceReport, ...]:
    """The figures of each device, in order of device."""
    gaps_of = rows_by(timeline.gaps.device)
    none = np.zeros(0, dtype=np.int64)
    return tuple(
        _device_report(timeline, device, mine, gaps_of.get(device, none))
        for device, mine in rows_by(timeline.trace.ops.device).items()
    )


def _device_report(timeline: Timeline, device: int, mine: Int64s, here: Int64s) -> DeviceReport:
    """The figures of one device; `mine` are its ops, `here` its gaps."""
    trace, busy = timeline.trace, timeline.busy[device]
    kind, attributed_ns = trace.ops.kind[mine], timeline.attributed_ns[mine]
    window_ns = int(busy.end_ns[-1] - busy.start_ns[0])
    floor_ns = timeline.floors_ns[device]
    measured = trace.capture is not None and trace.capture.kernel_floor_ns is not None
    shared = communication(trace, trace.ops.take(mine))
    streams = _stream_reports(timeline, mine, here)
    if len(streams) == 1:
        all_gaps, by_class, host_wait = streams[0].all_gaps, streams[0].gaps, streams[0].host_wait
    else:
        all_gaps, by_class, host_wait = idle_totals(timeline, here)
    return DeviceReport(
        device=trace.device_label(device),
        name=trace.device_names.get(device, ""),
        gpu_ops=len(mine),
        kernels=int(np.count_nonzero(kind == trace.kernel_kind)),
        window_ns=window_ns,
        busy_ns=busy.busy_ns,
        idle_ns=window_ns - busy.busy_ns,
        overlap_ns=sum(stream.overlap_ns for stream in streams),
        gaps=by_class,
        host_wait=host_wait,
        kernel_floor_ns=floor_ns,
        kernel_floor_estimated=floor_ns is not None and not measured,
        all_gaps=all_gaps,
        streams=streams,
        communication_ns=shared.busy_ns,
        exposed_communication_ns=shared.exposed_ns,
        communication=shared.by_kind,
        copies_attributed_ns=int(attributed_ns[(kind == MEMCPY) | (kind == MEMSET)].sum()),
        graphs_attributed_ns=int(attributed_ns[kind == GRAPH].sum()),
    )


def _stream_reports(timeline: Timeline, mine: Int64s, here: Int64s) -> tuple[StreamReport, ...]:
    """The streams of the ops `mine`, in order of their number; `here` are the device's gaps."""
    ops = timeline.trace.ops
    ended_by = rows_by(ops.stream[timeline.gaps.next[here]])
    none = np.zeros(0, dtype=np.int64)
    reports = []
    for own in grouped(mine, ops.stream):
        stream, begin, end = int(ops.stream[own[0]]), ops.start_ns[own], ops.end_ns[own]
        all_gaps, by_class, host_wait = idle_totals(timeline, here[ended_by.get(stream, none)])
        reports.append(
            StreamReport(
                stream=stream,
                gpu_ops=len(own),
                busy_ns=union(begin, end).busy_ns,
                overlap_ns=int(overlapped(begin, end).length_ns.sum()),
                gaps=by_class,
                host_wait=host_wait,
                all_gaps=all_gaps,
            )
        )
    return tuple(reports)


@dataclass(frozen=True, slots=True)
class Communication:
    """The communication of one device, in ns.

    `busy_ns` is the union of its ops, `exposed_ns` the part of it in which no other op ran on the
    device, `by_kind` the union of the ops of each kind, the longest first.
    """

    busy_ns: int
    exposed_ns: int
    by_kind: dict[str, int]


def communication(trace: Trace, ops: GpuOps) -> Communication:
    """The communication among `ops`: those of one device, sorted by start.

    exposed_ns = length of the union of all ops - length of the union of the ops that do not
    communicate.
    """
    used, place = np.unique(ops.name, return_inverse=True)
    kinds = [kernel_meaning(trace.names[name]).communication for name in used]
    if not any(kinds):
        return Communication(0, 0, {})
    kind = np.array([kind or "" for kind in kinds])[place]

    def busy_ns(chosen: GpuOps) -> int:
        return union(chosen.start_ns, chosen.end_ns).busy_ns

    found = {name: busy_ns(ops.take(kind == name)) for name in dict.fromkeys(kinds) if name}
    return Communication(
        busy_ns=busy_ns(ops.take(kind != "")),
        exposed_ns=busy_ns(ops) - busy_ns(ops.take(kind == "")),
        by_kind=dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))),
    )
