"""Kernels in groups: by role, layer or module. One kernel at a time: its launches, how their times
are distributed, and what they belong to."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_tree import GRAPH_REPLAY, folded_name
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, reports_by
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchShape, Percentiles
from decodescope.analyzer.trace import Columns, Int64s

UNKNOWN_NS = -1
NO_RANGE = "no range"
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
    """The `launches` of a kernel whose own range has this folded `path`, and their attributed
    time."""

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


def op_groups(analysis: Analysis, by: str) -> tuple[Int64s, tuple[str, ...]]:
    """The number of each op's group, and the names of the groups: `by` "role", "layer" (in their
    order) or "module": the innermost range of the program, with "*" for numbers."""
    structure, tree = analysis.structure, analysis.ranges.tree
    if by == "role":
        return structure.role.astype(np.int64), ROLES
    if by == "layer":
        layers = (f"layer.{layer}" for layer in range(int(structure.layer.max(initial=-1)) + 1))
        return structure.layer.astype(np.int64) + 1, ("outside of layers", *layers)
    own = np.arange(-1, len(tree))
    for node, parent in enumerate(tree.parents):
        if tree.operator[node] or tree.inferred[node] or tree.names[node] == GRAPH_REPLAY:
            own[node + 1] = own[parent + 1]
    used, place = np.unique(own[analysis.ranges.op_node + 1], return_inverse=True)
    paths = [folded_name(analysis.ranges.paths[one]) if one >= 0 else NO_RANGE for one in used]
    numbers = {path: number for number, path in enumerate(dict.fromkeys(paths))}
    return np.array([numbers[path] for path in paths], dtype=np.int64)[place], tuple(numbers)


def groupings(analysis: Analysis) -> tuple[str, ...]:
    """The ways in which the kernels of the main steps fall into groups."""
    kernels = analysis.main_ops & (analysis.trace.ops.kind == analysis.trace.kernel_kind)
    ways = ("role", "layer", "module")
    numbers = {way: op_groups(analysis, way)[0][kernels] for way in ways}
    return tuple(way for way in ways if len(np.unique(numbers[way])) > 1)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """The sums over the `kernels` of a group, whose shares are of all kernels; the largest kernel
    is first. `number` is that of `op_groups`."""

    number: int
    report: KernelReport
    kernels: tuple[KernelReport, ...]


def kernel_groups(analysis: Analysis, by: str, path: str | None = None) -> tuple[KernelGroup, ...]:
    """The groups of the kernels of the main steps, or of those in the range `path`: the one with
    the most time first, but layers in their order."""
    (group, group_names), names = op_groups(analysis, by), analysis.trace.names
    chosen = analysis.main_ops & analysis.ranges.ops_within(path)
    sums = reports_by(analysis, analysis.work, chosen, group, group_names)
    each = group * len(names) + analysis.trace.ops.name
    kernels: dict[int, list[KernelReport]] = {number: [] for number in sums}
    for number, kernel in reports_by(analysis, analysis.work, chosen, each, names).items():
        kernels[number // len(names)].append(kernel)
    order = sorted(sums) if by == "layer" else sums
    return tuple(KernelGroup(number, sums[number], tuple(kernels[number])) for number in order)


def kernel_group(analysis: Analysis, by: str, name: str, path: str | None) -> KernelReport | None:
    """The sums of one of them; None if it has no kernel there."""
    group, names = op_groups(analysis, by)
    chosen = analysis.main_ops & (group == (names.index(name) if name in names else -1))
    chosen &= analysis.ranges.ops_within(path)
    sums = reports_by(analysis, analysis.work, chosen, group, names)
    every = analysis.report.kernels
    total_ns, attributed_ns = (
        sum(getattr(kernel, figure) for kernel in every) or 1
        for figure in ("total_ns", "attributed_ns")
    )
    for report in sums.values():
        share, attributed = report.total_ns / total_ns, report.attributed_ns / attributed_ns
        return replace(report, share=share, attributed_share=attributed)
    return None


def kernel_launches(analysis: Analysis, name: str, within: str | None = None) -> KernelLaunches:
    """The ops of the kernel `name`, those of the range `within` if one is given; none if the trace
    has no such kernel."""
    trace = analysis.trace
    number = bisect_left(trace.names, name)
    if number >= len(trace.names) or trace.names[number] != name:
        return op_facts(analysis, np.zeros(0, dtype=np.int64))
    chosen = (trace.ops.name == number) & (trace.ops.kind == trace.kernel_kind)
    return op_facts(analysis, np.flatnonzero(chosen & analysis.ranges.ops_within(within)))


def op_facts(analysis: Analysis, op_rows: Int64s) -> KernelLaunches:
    """The same of any ops, rows of `Trace.ops`."""
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
    """The profile of one kernel in the main steps, None if they (or the range) do not have it."""
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
    attributed_ns = np.zeros(len(paths) + 1, dtype=np.int64)
    np.add.at(attributed_ns, node, launches.attributed_ns)
    of_paths: dict[str, tuple[int, int]] = {}
    for number, times in _counts(node):
        path = folded_name(paths[number])
        before, before_ns = of_paths.get(path, (0, 0))
        of_paths[path] = (before + times, before_ns + int(attributed_ns[number]))
    ranges = [RangeShare(path, *figures) for path, figures in of_paths.items()]
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
