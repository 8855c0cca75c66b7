"""The launch calls of a trace, and its kernels by total time."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.roofline.roofline import OpWork, rooflines
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchReport, ShortKernels
from decodescope.analyzer.timing.launches import LaunchCalls, queue_depth_over_time
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, Bools, Int32s, Trace


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


def kernel_reports(timeline: Timeline, work: OpWork, chosen: Bools) -> tuple[KernelReport, ...]:
    """The kernels among the `chosen` ops, one row for each name: longest total first; if ops
    overlap, longest attributed time first. `mean_ns` is rounded down. Of a trace without times,
    its totals."""
    names = timeline.trace.names
    if len(timeline.trace.totals):
        return _totals(timeline.trace)
    return tuple(reports_by(timeline, work, chosen, timeline.trace.ops.name, names).values())


def _totals(trace: Trace) -> tuple[KernelReport, ...]:
    totals = trace.totals
    all_ns = int(totals.total_ns.sum())
    rows = totals.take(np.lexsort((totals.name, -totals.total_ns)))
    return tuple(
        KernelReport(
            name=trace.names[name],
            count=count,
            total_ns=total_ns,
            mean_ns=total_ns // count,
            share=(share := total_ns / all_ns if all_ns else 0.0),
            attributed_ns=total_ns,
            attributed_share=share,
        )
        for name, count, total_ns in zip(
            rows.name.tolist(), rows.count.tolist(), rows.total_ns.tolist(), strict=True
        )
    )


def reports_by(
    timeline: Timeline,
    work: OpWork,
    chosen: Bools,
    number: NDArray[np.integer],
    names: Sequence[str],
) -> dict[int, KernelReport]:
    """The same of the kernels with each `number` (one for each op of the trace), by that number;
    its name is that of the number modulo the `names`. Equal times are in order of the numbers."""
    trace, launches = timeline.trace, timeline.launches
    kernel_rows = np.flatnonzero((trace.ops.kind == trace.kernel_kind) & chosen)
    numbers, place = np.unique(number[kernel_rows], return_inverse=True)
    times_ns = np.zeros((2, len(numbers)), dtype=np.int64)
    np.add.at(times_ns[0], place, trace.ops.length_ns[kernel_rows])
    np.add.at(times_ns[1], place, timeline.attributed_ns[kernel_rows])
    counts = np.bincount(place, minlength=len(numbers))
    short_ops = launches.first_op[_alone_and_short(trace, launches)[1]]
    short = Counter(number[short_ops[chosen[short_ops]]].tolist())
    all_totals, all_attributed = times_ns.sum(axis=1).tolist()
    known = rooflines(trace, work, kernel_rows, number)
    shapes = _shapes(number[kernel_rows], trace.ops.shape[kernel_rows])
    order = np.argsort(-times_ns[int(timeline.overlapping)], kind="stable")
    return {
        own: KernelReport(
            name=names[own % len(names)],
            count=count,
            total_ns=total_ns,
            mean_ns=total_ns // count,
            share=total_ns / all_totals if all_totals else 0.0,
            short_calls=short[own],
            roofline=known.get(own),
            attributed_ns=attributed_ns,
            attributed_share=attributed_ns / all_attributed if all_attributed else 0.0,
            shape=trace.shapes[shapes[own][0]] if own in shapes else None,
            shapes=shapes[own][1] if own in shapes else 0,
        )
        for own, count, total_ns, attributed_ns in zip(
            *(column[order].tolist() for column in (numbers, counts, *times_ns)), strict=True
        )
    }


def _shapes(name: NDArray[np.integer], shape: Int32s) -> dict[int, tuple[int, int]]:
    """By the number of a kernel: the shape of most ops (of equally many the earliest), and how many
    there are."""
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
