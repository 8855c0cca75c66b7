"""What the launch calls of a trace add up to."""

import numpy as np

from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.schema.report import LaunchReport
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.queue_depth import queue_depth_over_time
from decodescope.analyzer.timing.short_kernels import short_kernels
from decodescope.analyzer.timing.timeline import Union
from decodescope.analyzer.trace import Trace


def launch_report(trace: Trace, launches: LaunchCalls, unions: dict[int, Union]) -> LaunchReport:
    """Counts and distributions over launch calls; latencies are those of each call's first op."""
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
        queue_depth=queue_depth_over_time(trace, unions),
        short_kernels=short_kernels(trace, launches),
    )


def _by_api(trace: Trace, launches: LaunchCalls) -> dict[str, int]:
    names, counts = np.unique(trace.calls.name[launches.call], return_counts=True)
    pairs = sorted(zip(counts.tolist(), names.tolist(), strict=True), key=lambda p: (-p[0], p[1]))
    return {trace.names[name]: count for count, name in pairs}
