"""Matches the calls of generated code with the GPU ops in a profile of it."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.trace import Int64s
from decodescope.variants.steps.step import CallSite


def origin_paths(analysis: Analysis, step: int, sites: Sequence[CallSite]) -> dict[int, str]:
    """The range path of those of the step's GPU ops that `sites` explain, by op index.

    The outermost operators of the step that have the name of a site must be the sites one for one.
    Otherwise no path is given: layers repeat the same kernels, and one call more would shift them
    all. An op has the path of the operator that launched it, below the range that the host had
    open.
    """
    operators = _operators(analysis, step, {site.operator for site in sites})
    trace = analysis.trace
    found = [trace.names[name] for name in trace.cpu_ops.name[operators].tolist()]
    seen = set(found)
    known = [site for site in sites if site.operator in seen]
    if found != [site.operator for site in known]:
        return {}
    ranges = analysis.ranges
    paths = {}
    for op, operator in _launched_under(analysis, step, operators):
        node = int(ranges.op_node[op])
        if known[operator].path and node >= 0:
            paths[op] = f"{ranges.paths[node]}/{known[operator].path}"
    return paths


def _operators(analysis: Analysis, step: int, names: set[str]) -> Int64s:
    """The outermost operators of these names that began inside the step's marker, on its thread."""
    trace = analysis.trace
    operators, marker = trace.cpu_ops, int(analysis.steps.marker[step])
    if marker < 0:
        return np.zeros(0, dtype=np.int64)
    wanted = [number for number, name in enumerate(trace.names) if name in names]
    inside = np.isin(operators.name, wanted)
    inside &= operators.start_ns >= trace.ranges.start_ns[marker]
    inside &= operators.start_ns < trace.ranges.end_ns[marker]
    inside &= operators.pid == trace.ranges.pid[marker]
    inside &= operators.tid == trace.ranges.tid[marker]
    rows = np.flatnonzero(inside)
    ends = np.maximum.accumulate(operators.end_ns[rows])
    outermost = np.ones(len(rows), dtype=bool)
    outermost[1:] = operators.start_ns[rows[1:]] >= ends[:-1]
    return rows[outermost]


def _launched_under(analysis: Analysis, step: int, operators: Int64s) -> list[tuple[int, int]]:
    """The step's ops, each with the index in `operators` of the one that launched it."""
    trace = analysis.trace
    ops = np.flatnonzero((analysis.steps.op_step == step) & (trace.ops.launch >= 0))
    if not len(operators):
        return []
    calls = trace.ops.launch[ops]
    starts, ends = trace.cpu_ops.start_ns[operators], trace.cpu_ops.end_ns[operators]
    place = np.searchsorted(starts, trace.calls.start_ns[calls], side="right") - 1
    under = (place >= 0) & (trace.calls.start_ns[calls] < ends[place])
    under &= trace.calls.pid[calls] == trace.cpu_ops.pid[operators[0]]
    under &= trace.calls.tid[calls] == trace.cpu_ops.tid[operators[0]]
    return list(zip(ops[under].tolist(), place[under].tolist(), strict=True))
