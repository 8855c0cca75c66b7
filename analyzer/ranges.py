"""What each annotated range of the host put on the GPU, as a tree of paths.

An op belongs to the innermost range that was open on the launching thread when its launch call
began, and to every range around that one. In a CPU capture the operator's own start counts.
"""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.launches import LaunchCalls
from decodescope.analyzer.report import Confidence, RangeReport
from decodescope.analyzer.steps import step_kind
from decodescope.analyzer.timeline import grouped_busy_ns
from decodescope.analyzer.trace import Int64s, Trace

GRAPH_REPLAY = "(graph replay)"
_NONE = -1


@dataclass(slots=True)
class _PathTree:
    """Paths as nodes with parents; instances of one path share a node, across threads too."""

    ids: dict[tuple[int, str], int]
    parents: list[int]
    depths: list[int]
    names: list[str]

    def child(self, parent: int, name: str) -> int:
        node = self.ids.setdefault((parent, name), len(self.ids))
        if node == len(self.parents):
            self.parents.append(parent)
            self.depths.append(0 if parent == _NONE else self.depths[parent] + 1)
            self.names.append(name)
        return node

    def paths(self) -> tuple[str, ...]:
        """The whole path of each node."""
        full: list[str] = []
        for parent, name in zip(self.parents, self.names, strict=True):
            full.append(name if parent == _NONE else f"{full[parent]}/{name}")
        return tuple(full)


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Which range path each op and each launch call belongs to.

    `op_node` (one for each op of the trace) and `call_node` (one for each row of `LaunchCalls`)
    index `paths` and `parents`; -1 stands for none.
    """

    op_node: Int64s
    call_node: Int64s
    paths: tuple[str, ...]
    parents: Int64s
    tree: _PathTree


def find_ranges(trace: Trace, launches: LaunchCalls) -> Ranges:
    """The innermost range of every op and launch call.

    The ops of a graph replay were captured under ranges that the replay does not show: they stand
    under the range around the launch as a child `(graph replay)`.
    """
    tree = _PathTree({}, [], [], [])
    if trace.on_cpu:
        pid = np.full(len(trace.ops), trace.cpu_ops.pid[0] if len(trace.cpu_ops) else 0)
        op_node = _innermost(trace, tree, trace.ops.start_ns, pid, trace.ops.stream)
        call_node = np.zeros(0, dtype=np.int64)
    else:
        calls, launching = trace.calls, launches.call
        call_node = _innermost(
            trace, tree, calls.start_ns[launching], calls.pid[launching], calls.tid[launching]
        )
        for row in np.flatnonzero(launches.is_graph & (call_node >= 0)).tolist():
            call_node[row] = tree.child(int(call_node[row]), GRAPH_REPLAY)
        op_node = np.full(len(trace.ops), _NONE, dtype=np.int64)
        linked = trace.ops.launch >= 0
        op_node[linked] = call_node[np.searchsorted(launching, trace.ops.launch[linked])]
    parents = np.array(tree.parents, dtype=np.int64)
    return Ranges(op_node, call_node, tree.paths(), parents, tree)


def range_reports(trace: Trace, ranges: Ranges) -> tuple[RangeReport, ...]:
    """The range paths that launched GPU work, parents before children, largest sibling first.

    `gpu_ns` is the union of the ops of the whole subtree (summed over devices).
    """
    return _reports(ranges.tree, *_inclusive(trace, ranges.tree, ranges.op_node, ranges.call_node))


def _innermost(trace: Trace, tree: _PathTree, at_ns: Int64s, pid: Int64s, tid: Int64s) -> Int64s:
    """The node of the innermost range open at each time on its thread, -1 for none."""
    ranges = trace.ranges
    node = np.full(len(at_ns), _NONE, dtype=np.int64)
    threads = np.unique(np.stack((ranges.pid, ranges.tid), axis=1), axis=0)
    kinds = {name: step_kind(trace.names[name]) for name in np.unique(ranges.name).tolist()}
    for process, thread in threads.tolist():
        here = np.flatnonzero((pid == process) & (tid == thread))
        if not len(here):
            continue
        mine = np.flatnonzero((ranges.pid == process) & (ranges.tid == thread))
        times, nodes = _changes(
            tree,
            ranges.start_ns[mine].tolist(),
            ranges.end_ns[mine].tolist(),
            [kinds[name] for name in ranges.name[mine].tolist()],
        )
        index = np.searchsorted(times, at_ns[here], side="right") - 1
        node[here] = np.where(index >= 0, nodes[index], _NONE)
    return node


def _changes(
    tree: _PathTree, starts: list[int], ends: list[int], names: list[str]
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
            nodes.append(open_ranges[-1][1] if open_ranges else _NONE)

    for start, end, name in zip(starts, ends, names, strict=True):
        close_until(start)
        node = tree.child(open_ranges[-1][1] if open_ranges else _NONE, name)
        open_ranges.append((end, node))
        times.append(start)
        nodes.append(node)
    close_until(None)
    return np.array(times, dtype=np.int64), np.array(nodes, dtype=np.int64)


def _inclusive(
    trace: Trace, tree: _PathTree, op_node: Int64s, call_node: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """GPU time, ops and launch calls of each node with all below it, from the deepest level up."""
    count = len(tree.parents)
    gpu_ns, gpu_ops, launch_calls = np.zeros((3, count), dtype=np.int64)
    parents = np.array([*tree.parents, _NONE], dtype=np.int64)
    depths = np.array([*tree.depths, _NONE], dtype=np.int64)
    devices, device_index = np.unique(trace.ops.device, return_inverse=True)
    op_node, call_node = op_node.copy(), call_node.copy()
    for depth in range(int(depths.max()), -1, -1):
        ops = np.flatnonzero(depths[op_node] == depth)
        nodes = op_node[ops]
        groups, group = np.unique(nodes * len(devices) + device_index[ops], return_inverse=True)
        busy = grouped_busy_ns(group, trace.ops.start_ns[ops], trace.ops.end_ns[ops], len(groups))
        np.add.at(gpu_ns, groups // max(len(devices), 1), busy)
        gpu_ops += np.bincount(nodes, minlength=count)
        calls = np.flatnonzero(depths[call_node] == depth)
        launch_calls += np.bincount(call_node[calls], minlength=count)
        op_node[ops] = parents[nodes]
        call_node[calls] = parents[call_node[calls]]
    return gpu_ns, gpu_ops, launch_calls


def _reports(
    tree: _PathTree, gpu_ns: Int64s, gpu_ops: Int64s, launch_calls: Int64s
) -> tuple[RangeReport, ...]:
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        if gpu_ops[node]:
            children.setdefault(parent, []).append(node)
    reports = []
    pending = [(node, "") for node in _largest_last(children.get(_NONE, []), tree, gpu_ns)]
    while pending:
        node, prefix = pending.pop()
        path = prefix + tree.names[node]
        confidence: Confidence = "none" if tree.names[node] == GRAPH_REPLAY else "exact"
        reports.append(
            RangeReport(
                path=path,
                gpu_ns=int(gpu_ns[node]),
                gpu_ops=int(gpu_ops[node]),
                launch_calls=int(launch_calls[node]),
                confidence=confidence,
            )
        )
        below = _largest_last(children.get(node, []), tree, gpu_ns)
        pending.extend((child, path + "/") for child in below)
    return tuple(reports)


def _largest_last(nodes: list[int], tree: _PathTree, gpu_ns: Int64s) -> list[int]:
    return sorted(nodes, key=lambda node: (-int(gpu_ns[node]), tree.names[node]), reverse=True)
