"""The launch calls of a trace, and its kernels by total time."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.roofline.roofline import OpWork, rooflines
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchReport, ShortKernels
from decodescope.analyzer.timing.launches import LaunchCalls, queue_depth_over_time
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, Bools, Columns, Int32s, Int64s, Trace


def launch_report(timeline: Timeline, chosen: Bools) -> LaunchReport:
    """Counts and distributions over the launch calls of the `chosen` ops; latencies are those of
    each call's first op. The queue over time is that of all calls."""
    trace = timeline.trace
    launches = timeline.launches.take(chosen[timeline.launches.first_op])
    calls = trace.calls.take(launches.call)
    begin_ns = trace.ops.start_ns[launches.first_op]
    queue_ns = begin_ns - calls.end_ns
    depth = launches.queue_depth
    apis, counts = np.unique(calls.name, return_counts=True)
    most_first = np.lexsort((apis, -counts)).tolist()
    return LaunchReport(
        calls=len(launches),
        by_api={trace.names[apis[row]]: int(counts[row]) for row in most_first},
        graph_launches=int(launches.is_graph.sum()),
        gpu_ops_per_graph_launch=tuple(launches.ops[launches.is_graph].tolist()),
        api_ns=percentiles(calls.length_ns),
        queue_ns=percentiles(queue_ns[queue_ns >= 0]),
        launch_latency_ns=percentiles(begin_ns - calls.start_ns),
        median_queue_depth=float(np.median(depth)) if len(depth) else None,
        queue_depth=queue_depth_over_time(trace, timeline.busy),
        short_kernels=_short_kernels(trace, launches),
    )


@dataclass(frozen=True, slots=True, eq=False)
class KernelTimes(Columns):
    """One row for each kernel name (in a CPU capture: each leaf operator), longest total first; if
    ops overlap, longest attributed time first. `name` indexes `Trace.names`; `count` ops, and the
    sums of their times."""

    name: Int64s
    count: Int64s
    total_ns: Int64s
    attributed_ns: Int64s


def kernel_times(timeline: Timeline, chosen: Bools) -> KernelTimes:
    """The kernels of the `chosen` ops."""
    trace, kernel_rows = timeline.trace, _kernels_of(timeline, chosen)
    named = trace.ops.name[kernel_rows]
    count, total_ns, attributed_ns = np.zeros((3, len(trace.names)), dtype=np.int64)
    np.add.at(count, named, 1)
    np.add.at(total_ns, named, trace.ops.length_ns[kernel_rows])
    np.add.at(attributed_ns, named, timeline.attributed_ns[kernel_rows])
    rank_ns = attributed_ns if timeline.overlapping else total_ns
    names = np.flatnonzero(count)
    # Names are numbered in their order.
    names = names[np.lexsort((names, -rank_ns[names]))]
    return KernelTimes(names, count[names], total_ns[names], attributed_ns[names])


def kernel_reports(timeline: Timeline, work: OpWork, chosen: Bools) -> tuple[KernelReport, ...]:
    """The rows of `kernel_times` with all that is known of each kernel.

    `mean_ns` is total / count rounded down, `share` total / sum of all totals, `attributed_share`
    the same of attributed times.
    """
    trace, launches = timeline.trace, timeline.launches
    times, kernel_rows = kernel_times(timeline, chosen), _kernels_of(timeline, chosen)
    short_ops = launches.first_op[_alone_and_short(trace, launches)[1]]
    short_ops = short_ops[chosen[short_ops]]
    short = np.bincount(trace.ops.name[short_ops], minlength=len(trace.names))[times.name]
    all_totals, all_attributed = int(times.total_ns.sum()), int(times.attributed_ns.sum())
    known = rooflines(trace, work, kernel_rows)
    shapes = _shapes(trace.ops.name[kernel_rows], trace.ops.shape[kernel_rows])
    columns = (times.name, times.count, times.total_ns, times.attributed_ns, short)
    return tuple(
        KernelReport(
            name=trace.names[name],
            count=count,
            total_ns=total_ns,
            mean_ns=total_ns // count,
            share=total_ns / all_totals if all_totals else 0.0,
            short_calls=short_calls,
            roofline=known.get(name),
            attributed_ns=attributed_ns,
            attributed_share=attributed_ns / all_attributed if all_attributed else 0.0,
            shape=trace.shapes[shapes[name][0]] if name in shapes else None,
            shapes=shapes[name][1] if name in shapes else 0,
        )
        for name, count, total_ns, attributed_ns, short_calls in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )


def _kernels_of(timeline: Timeline, chosen: Bools) -> Int64s:
    trace = timeline.trace
    return np.flatnonzero((trace.ops.kind == trace.kernel_kind) & chosen)


def _shapes(name: Int32s, shape: Int32s) -> dict[int, tuple[int, int]]:
    """By name: the shape of most ops (of equally many the earliest), and how many there are."""
    known = shape >= 0
    distinct = int(shape.max(initial=0)) + 1
    pair = name[known].astype(np.int64) * distinct + shape[known]
    pairs, earliest, ops_of = np.unique(pair, return_index=True, return_counts=True)
    names, shapes = np.divmod(pairs, distinct)
    order = np.lexsort((earliest, -ops_of, names))
    of_name, best, count = np.unique(names[order], return_index=True, return_counts=True)
    most_often = zip(shapes[order][best].tolist(), count.tolist(), strict=True)
    return dict(zip(of_name.tolist(), most_often, strict=True))


def _short_kernels(trace: Trace, launches: LaunchCalls) -> ShortKernels | None:
    """Number, share and times of the short kernels; None if no call launched a kernel alone."""
    alone, short = _alone_and_short(trace, launches)
    if not alone.any():
        return None
    return ShortKernels(
        count=int(short.sum()),
        share=float(short.sum() / alone.sum()),
        gpu_ns=int(trace.ops.length_ns[launches.first_op[short]].sum()),
        api_ns=int(trace.calls.length_ns[launches.call[short]].sum()),
    )


def _alone_and_short(trace: Trace, launches: LaunchCalls) -> tuple[Bools, Bools]:
    """Whether each launch call launched one kernel and nothing else, and whether that kernel also
    ran for less time than the call took."""
    ops = trace.ops
    alone = (ops.kind[launches.first_op] == KERNEL) & (launches.ops == 1) & ~launches.is_graph
    api_ns = trace.calls.length_ns[launches.call]
    return alone, alone & (ops.length_ns[launches.first_op] < api_ns)
