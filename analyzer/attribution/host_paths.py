"""The path that a host thread was in at a time: its open ranges, else its framework operators."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_names import path_part
from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.timing.steps import is_step_name
from decodescope.analyzer.trace import HostEvents, Int64s, Trace

# Frames that PyTorch puts around other operators: what is inside says more.
_WRAPPER = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction(?:Backward)?$"
    r"|autograd::engine::evaluate_function"
)


def host_nodes(
    trace: Trace,
    tree: PathTree,
    at_ns: Int64s,
    pid: Int64s,
    tid: Int64s,
    below_markers: NDArray[np.bool_],
) -> Int64s:
    """The node of the innermost range open at each time on its thread, `NO_NODE` for none.

    Where the host opened none, the outermost operator that was open stands in, as a node of its
    own; where it opened only a step marker, the operator stands below it if `below_markers`.
    """
    node = _innermost_range(trace, tree, at_ns, pid, tid)
    steps = np.array([is_step_name(name) for name in tree.names], dtype=np.bool_)
    bare = node == NO_NODE
    marked = np.flatnonzero(~bare & below_markers)
    bare[marked] = steps[node[marked]]
    rows = np.flatnonzero(bare)
    operator = _outermost_operator(trace, at_ns[rows], pid[rows], tid[rows])
    rows, operator = rows[operator >= 0], operator[operator >= 0]
    names = len(trace.names)
    pairs, pair = np.unique(node[rows] * names + trace.cpu_ops.name[operator], return_inverse=True)
    below = [
        tree.child(code // names, trace.names[code % names], operator=True)
        for code in pairs.tolist()
    ]
    node[rows] = np.array(below, dtype=np.int64)[pair]
    return node


def _innermost_range(
    trace: Trace, tree: PathTree, at_ns: Int64s, pid: Int64s, tid: Int64s
) -> Int64s:
    ranges = trace.ranges
    node = np.full(len(at_ns), NO_NODE, dtype=np.int64)
    parts = {name: path_part(trace.names[name]) for name in np.unique(ranges.name).tolist()}
    shown = np.isin(ranges.name, [name for name, part in parts.items() if part is not None])
    for mine, here in _threads(ranges, np.flatnonzero(shown), pid, tid):
        times, nodes = _changes(
            tree,
            ranges.start_ns[mine].tolist(),
            ranges.end_ns[mine].tolist(),
            [parts[name] or "" for name in ranges.name[mine].tolist()],
        )
        index = np.searchsorted(times, at_ns[here], side="right") - 1
        node[here] = np.where(index >= 0, nodes[index], NO_NODE)
    return node


def _changes(
    tree: PathTree, starts: list[int], ends: list[int], names: list[str]
) -> tuple[Int64s, Int64s]:
    """When the innermost open range of one thread changes, and to which node."""
    times: list[int] = []
    nodes: list[int] = []
    open_ranges: list[tuple[int, int]] = []

    def close_until(now: int | None) -> None:
        while open_ranges and (now is None or open_ranges[-1][0] <= now):
            closed_at = open_ranges.pop()[0]
            while open_ranges and open_ranges[-1][0] <= closed_at:
                open_ranges.pop()
            times.append(closed_at)
            nodes.append(open_ranges[-1][1] if open_ranges else NO_NODE)

    for start, end, name in zip(starts, ends, names, strict=True):
        close_until(start)
        node = tree.child(open_ranges[-1][1] if open_ranges else NO_NODE, name)
        open_ranges.append((end, node))
        times.append(start)
        nodes.append(node)
    close_until(None)
    return np.array(times, dtype=np.int64), np.array(nodes, dtype=np.int64)


def _outermost_operator(trace: Trace, at_ns: Int64s, pid: Int64s, tid: Int64s) -> Int64s:
    """The outermost open operator that wraps no others, else the wrapper; -1 for none."""
    operators = trace.cpu_ops
    found = np.full(len(at_ns), -1, dtype=np.int64)
    if not len(at_ns) or not len(operators):
        return found
    wraps = np.array([bool(_WRAPPER.match(name)) for name in trace.names], dtype=np.bool_)
    is_wrapper = wraps[operators.name]
    for chosen in (is_wrapper, ~is_wrapper):
        for mine, here in _threads(operators, np.flatnonzero(chosen), pid, tid):
            start, end = operators.start_ns[mine], operators.end_ns[mine]
            reach = np.maximum.accumulate(end)
            top = np.flatnonzero(np.concatenate(([True], start[1:] >= reach[:-1])))
            index = top[np.searchsorted(start[top], at_ns[here], side="right") - 1]
            is_open = (start[index] <= at_ns[here]) & (at_ns[here] < end[index])
            found[here[is_open]] = mine[index[is_open]]
    return found


def _threads(
    events: HostEvents, chosen: Int64s, pid: Int64s, tid: Int64s
) -> Iterator[tuple[Int64s, Int64s]]:
    """For each thread that has both, its chosen events (by start) and its rows of `pid`/`tid`."""
    for process in np.unique(pid).tolist():
        of_process = chosen[events.pid[chosen] == process]
        for thread in np.unique(tid[pid == process]).tolist():
            mine = of_process[events.tid[of_process] == thread]
            if len(mine):
                yield mine, np.flatnonzero((pid == process) & (tid == thread))
