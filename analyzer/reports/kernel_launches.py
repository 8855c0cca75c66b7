"""One kernel at a time: its launches, how their times are distributed, and what they belong to."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_tree import NO_NODE
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, kernel_times
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchShape, Percentiles
from decodescope.analyzer.trace import Columns, Int64s

UNKNOWN_NS = -1
_TOP_RANGES = 8


@dataclass(frozen=True, slots=True, eq=False)
class KernelLaunches(Columns):
    """One row for each op of a kernel, in order of start; times that are not known are
    `UNKNOWN_NS`.

    `op` indexes `Trace.ops`. `at_ns` is its start, from the first op of the trace; `queue_ns` its
    start - the end of its launch call, if that is not negative; `latency_ns` its start - the start
    of that call; `gap_ns` the gap of its device that it ended, 0 if it ended none.
    """

    op: Int64s
    at_ns: Int64s
    length_ns: Int64s
    attributed_ns: Int64s
    queue_ns: Int64s
    latency_ns: Int64s
    gap_ns: Int64s


@dataclass(frozen=True, slots=True)
class RangeShare:
    """The `launches` of a kernel whose own range is `path`, and their attributed time."""

    path: str
    launches: int
    attributed_ns: int


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """The common facts of the launches of one kernel, and how they differ.

    `lengths` and `gaps` are distributions of durations and of the gaps that its launches ended.
    `shapes` has each launch shape and how often, most frequent first. `ranges` are those with the
    most attributed time; `other_ranges` counts the others. `calls` are the names of the launch
    calls.
    """

    report: KernelReport
    lengths: Percentiles | None
    gaps: Percentiles | None
    shapes: tuple[tuple[LaunchShape, int], ...]
    ranges: tuple[RangeShare, ...]
    other_ranges: int
    streams: tuple[int, ...]
    calls: tuple[str, ...]


def kernels_within(analysis: Analysis, path: str) -> tuple[KernelReport, ...]:
    """The kernels of the ops of the range `path` and of those inside it, as in `Report.kernels`:
    counts and times are of these ops, and shares of their times."""
    inside = analysis.ranges.ops_within(path) & analysis.main_ops
    return kernel_reports(analysis, analysis.work, inside)


def longest_kernels_within(analysis: Analysis, path: str, most: int) -> list[tuple[str, int, int]]:
    """Name, count and time (attributed time, if ops overlap) of the first `most` kernels of
    `kernels_within`, without the other figures."""
    inside = analysis.ranges.ops_within(path) & analysis.main_ops
    times = kernel_times(analysis, inside).take(slice(most))
    names = [analysis.trace.names[name] for name in times.name.tolist()]
    ranked_ns = times.attributed_ns if analysis.overlapping else times.total_ns
    return list(zip(names, times.count.tolist(), ranked_ns.tolist(), strict=True))


def kernel_launches(analysis: Analysis, name: str, within: str | None = None) -> KernelLaunches:
    """The ops of the kernel `name`, those of the range `within` if one is given; none if the trace
    has no such kernel."""
    trace = analysis.trace
    number = bisect_left(trace.names, name)
    if number >= len(trace.names) or trace.names[number] != name:
        return _facts(analysis, np.zeros(0, dtype=np.int64))
    chosen = (trace.ops.name == number) & (trace.ops.kind == trace.kernel_kind)
    if within is not None:
        chosen &= analysis.ranges.ops_within(within)
    return _facts(analysis, np.flatnonzero(chosen))


def op_facts(analysis: Analysis, row: int) -> KernelLaunches:
    """The same of one op, a row of `Trace.ops`."""
    return _facts(analysis, np.array([row]))


def _facts(analysis: Analysis, op_rows: Int64s) -> KernelLaunches:
    trace, gaps = analysis.trace, analysis.gaps
    ops, calls = trace.ops, trace.calls
    begin_ns, call = ops.start_ns[op_rows], ops.launch[op_rows]
    linked = np.flatnonzero(call >= 0)
    queue_ns, latency_ns = np.full((2, len(op_rows)), UNKNOWN_NS, dtype=np.int64)
    queued_ns = begin_ns[linked] - calls.end_ns[call[linked]]
    queue_ns[linked] = np.where(queued_ns >= 0, queued_ns, UNKNOWN_NS)
    latency_ns[linked] = np.maximum(begin_ns[linked] - calls.start_ns[call[linked]], UNKNOWN_NS)
    ended_ns = np.zeros(len(ops), dtype=np.int64)
    ended_ns[gaps.next] = gaps.length_ns
    return KernelLaunches(
        op=op_rows,
        at_ns=begin_ns - ops.start_ns[:1],
        length_ns=ops.length_ns[op_rows],
        attributed_ns=analysis.attributed_ns[op_rows],
        queue_ns=queue_ns,
        latency_ns=latency_ns,
        gap_ns=ended_ns[op_rows],
    )


def kernel_profile(
    analysis: Analysis, name: str, within: str | None = None
) -> KernelProfile | None:
    """The profile of one kernel in the steps that `Report.kernels` is of, None if they (or the
    range) do not have it."""
    kernels = analysis.report.kernels if within is None else kernels_within(analysis, within)
    report = next((kernel for kernel in kernels if kernel.name == name), None)
    if report is None:
        return None
    trace, paths = analysis.trace, analysis.ranges.paths
    launches = kernel_launches(analysis, name, within)
    launches = launches.take(analysis.main_ops[launches.op])
    shapes = [
        (trace.shapes[shape], times) for shape, times in _counts(trace.ops.shape[launches.op])
    ]
    node = analysis.ranges.op_node[launches.op]
    attributed_ns = np.zeros(len(paths), dtype=np.int64)
    inside = node != NO_NODE
    np.add.at(attributed_ns, node[inside], launches.attributed_ns[inside])
    ranges = [
        RangeShare(paths[number], times, int(attributed_ns[number]))
        for number, times in _counts(node)
    ]
    ranges.sort(key=lambda share: (-share.attributed_ns, share.path))
    call = trace.ops.launch[launches.op]
    return KernelProfile(
        report=report,
        lengths=percentiles(launches.length_ns),
        gaps=percentiles(launches.gap_ns[launches.gap_ns > 0]),
        shapes=tuple(sorted(shapes, key=lambda shape: -shape[1])),
        ranges=tuple(ranges[:_TOP_RANGES]),
        other_ranges=len(ranges[_TOP_RANGES:]),
        streams=tuple(np.unique(trace.ops.stream[launches.op]).tolist()),
        calls=tuple(trace.names[api] for api, _ in _counts(trace.calls.name[call[call >= 0]])),
    )


def _counts(numbers: NDArray[np.integer]) -> list[tuple[int, int]]:
    """Each number that occurs and is not negative, and how often."""
    count = np.bincount(numbers[numbers >= 0])
    return [(number, int(count[number])) for number in np.flatnonzero(count).tolist()]
