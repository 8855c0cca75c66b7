"""Launch calls: the host API calls that put work on a device, and how long that took to start."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.report import LaunchReport, Percentiles
from decodescope.analyzer.timeline import depth_at_starts
from decodescope.analyzer.trace import Int64s, Trace

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCalls:
    """One row for each call that put at least one GPU op on a device, in order of call start.

    `call` indexes `Trace.calls`, `first_op` is its earliest op in `Trace.ops`, `ops` how many it
    has. `queue_depth` counts the ops of that device that are launched and not yet started at the
    call's start, its own included (a graph launch adds all its ops).
    """

    call: Int64s
    first_op: Int64s
    ops: Int64s
    is_graph: NDArray[np.bool_]
    queue_depth: Int64s

    def __len__(self) -> int:
        return len(self.call)


def graph_launch_calls(trace: Trace) -> NDArray[np.bool_]:
    """For each host call, whether its name says that it launches a graph."""
    by_name = np.array([bool(_GRAPH_LAUNCH.search(name)) for name in trace.names], dtype=np.bool_)
    if not len(by_name):
        return np.zeros(len(trace.calls), dtype=np.bool_)
    return np.asarray(by_name[trace.calls.name])


def find_launch_calls(trace: Trace) -> LaunchCalls:
    """The launch calls of a trace; ops without a call in the trace take no part."""
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call, first, ops = np.unique(trace.ops.launch[linked], return_index=True, return_counts=True)
    first_op = linked[first]
    return LaunchCalls(
        call=call,
        first_op=first_op,
        ops=ops,
        is_graph=graph_launch_calls(trace)[call],
        queue_depth=_queue_depth(trace, linked, call, first_op),
    )


def launch_report(trace: Trace, launches: LaunchCalls) -> LaunchReport:
    """Counts and percentiles over launch calls; latencies are those of each call's first op."""
    start = trace.calls.start_ns[launches.call]
    end = trace.calls.end_ns[launches.call]
    begin = trace.ops.start_ns[launches.first_op]
    queue = begin - end
    depth = launches.queue_depth
    return LaunchReport(
        calls=len(launches),
        by_api=_by_api(trace, launches),
        graph_launches=int(launches.is_graph.sum()),
        gpu_ops_per_graph_launch=tuple(launches.ops[launches.is_graph].tolist()),
        api_ns=percentiles(end - start),
        queue_ns=percentiles(queue[queue >= 0]),
        launch_latency_ns=percentiles(begin - start),
        median_queue_depth=float(np.median(depth)) if len(depth) else None,
    )


def percentiles(values_ns: Int64s) -> Percentiles | None:
    """Nearest-rank percentiles (always a measured value), None of nothing."""
    if not len(values_ns):
        return None
    p50, p90, p99 = np.percentile(values_ns, (50, 90, 99), method="inverted_cdf")
    low, high = values_ns.min(), values_ns.max()
    return Percentiles(p50=int(p50), p90=int(p90), p99=int(p99), min=int(low), max=int(high))


def _by_api(trace: Trace, launches: LaunchCalls) -> dict[str, int]:
    names, counts = np.unique(trace.calls.name[launches.call], return_counts=True)
    pairs = sorted(zip(counts.tolist(), names.tolist(), strict=True), key=lambda p: (-p[0], p[1]))
    return {trace.names[name]: count for count, name in pairs}


def _queue_depth(trace: Trace, linked: Int64s, call: Int64s, first_op: Int64s) -> Int64s:
    depth = np.zeros(len(call), dtype=np.int64)
    op_device = trace.ops.device[linked]
    call_device = trace.ops.device[first_op]
    launched_ns = trace.calls.start_ns[trace.ops.launch[linked]]
    started_ns = np.maximum(trace.ops.start_ns[linked], launched_ns)
    for device in np.unique(call_device):
        mine, here = op_device == device, call_device == device
        depth[here] = depth_at_starts(
            launched_ns[mine], started_ns[mine], trace.calls.start_ns[call[here]]
        )
    return depth
