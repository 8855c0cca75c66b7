"""Gaps as a report shows them: summed by class, and the longest ones with what surrounded them."""

import numpy as np

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.distributions import histogram
from decodescope.analyzer.schema.report import GAP_CLASSES, GapReport, GapTotal, HostActivity
from decodescope.analyzer.timing.gaps import HOST_WAIT, HOST_WAIT_LABELS, Gaps
from decodescope.analyzer.timing.host_activity import host_activity
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.timing.timeline import Union
from decodescope.analyzer.trace import CPU_DEVICE, Int8s, Int64s, Trace

LARGEST_GAPS = 10


def gap_totals(kinds: Int8s, lengths_ns: Int64s, names: tuple[str, ...]) -> dict[str, GapTotal]:
    """Count, sum, maximum and histogram of the lengths for each name, in the order of `names`."""
    return {name: _total(lengths_ns[kinds == index]) for index, name in enumerate(names)}


def _total(lengths_ns: Int64s) -> GapTotal:
    return GapTotal(
        count=len(lengths_ns),
        total_ns=int(lengths_ns.sum()),
        max_ns=int(lengths_ns.max(initial=0)),
        histogram=histogram(lengths_ns),
    )


def device_label(trace: Trace, device: int) -> int | str:
    """How reports call a device: its ordinal, or "cpu" where leaf operators stand for GPU ops."""
    return "cpu" if device == CPU_DEVICE and trace.on_cpu else device


def largest_gaps(
    trace: Trace,
    unions: dict[int, Union],
    gaps: Gaps,
    launches: LaunchCalls,
    steps: Steps,
    ranges: Ranges,
) -> tuple[GapReport, ...]:
    """The `LARGEST_GAPS` longest gaps, longest first; ties in order of device and start."""
    order = np.argsort(gaps.start_ns - gaps.end_ns, kind="stable")[:LARGEST_GAPS]
    return tuple(
        _gap_report(trace, unions, gaps, launches, steps, ranges, index) for index in order.tolist()
    )


def _gap_report(
    trace: Trace,
    unions: dict[int, Union],
    gaps: Gaps,
    launches: LaunchCalls,
    steps: Steps,
    ranges: Ranges,
    index: int,
) -> GapReport:
    device, start = int(gaps.device[index]), int(gaps.start_ns[index])
    label, call, ended_by = (int(column[index]) for column in (gaps.label, gaps.call, gaps.next))
    stream, step = int(trace.ops.stream[ended_by]), int(steps.op_step[ended_by])
    node = int(ranges.op_node[ended_by])
    return GapReport(
        device=device_label(trace, device),
        at_ns=start - int(unions[device].start_ns[0]),
        length_ns=int(gaps.end_ns[index]) - start,
        gap_class=GAP_CLASSES[gaps.kind[index]],
        label=HOST_WAIT_LABELS[label] if label >= 0 else None,
        prev=trace.names[trace.ops.name[gaps.prev[index]]],
        next=trace.names[trace.ops.name[ended_by]],
        call=trace.names[trace.calls.name[call]] if call >= 0 else None,
        stream=stream,
        step=step if step >= 0 else None,
        range=ranges.paths[node] if node >= 0 else None,
        host=_host(trace, gaps, launches, index),
    )


def _host(trace: Trace, gaps: Gaps, launches: LaunchCalls, index: int) -> HostActivity | None:
    """What the launching thread was in, halfway through the time in which the host was late.

    That is from the gap's start to its launch call; where the call began earlier, or is unknown,
    the whole gap counts.
    """
    thread = _launching_thread(trace, gaps, launches, index)
    if thread is None:
        return None
    start, end, call = (int(column[index]) for column in (gaps.start_ns, gaps.end_ns, gaps.call))
    if call >= 0 and gaps.kind[index] == HOST_WAIT:
        end = min(end, int(trace.calls.start_ns[call]))
    return host_activity(trace, start + (end - start) // 2, *thread)


def _launching_thread(
    trace: Trace, gaps: Gaps, launches: LaunchCalls, index: int
) -> tuple[int, int] | None:
    """(pid, tid) of the gap's launch call, else of the thread with most launch calls.

    In a CPU capture it is the thread that ran the operator which ended the gap.
    """
    if trace.on_cpu:
        pid = int(trace.cpu_ops.pid[0]) if len(trace.cpu_ops) else -1
        return pid, int(trace.ops.stream[gaps.next[index]])
    call = int(gaps.call[index])
    if call >= 0:
        return int(trace.calls.pid[call]), int(trace.calls.tid[call])
    if not len(launches):
        return None
    pids, tids = trace.calls.pid[launches.call], trace.calls.tid[launches.call]
    threads, counts = np.unique(np.stack((pids, tids), axis=1), axis=0, return_counts=True)
    pid, tid = threads[counts.argmax()].tolist()
    return pid, tid
