"""Range paths as a tree, and the place of a host thread in it at a given time.

Every instance of a path, on any thread and in any step, is one node. Siblings whose names differ
only in their numbers, as the layers of a model, can be shown as one: "step/layer.*" is the folded
path of "step/layer.0", "step/layer.1", ….
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.report import HostActivity
from decodescope.analyzer.timing.intervals import around, containing, open_changes, outermost
from decodescope.analyzer.timing.launches import threads_at
from decodescope.analyzer.timing.step_annotations import is_step_name, step_kind
from decodescope.analyzer.trace import Bools, HostEvents, HostTimes, Int64s, Trace, rows_in

GRAPH_REPLAY = "(graph replay)"
# Below a range, the ops that are in no range inside it.
OWN_OPS = "(own ops)"
NO_NODE = -1
# Ten times the longest path, and 400 times all paths, of the traces of others that we have.
MAX_PATH = 2_048
MAX_PATHS = 64 << 20
_NUMBER = r"\d+(?![A-Za-z\d])"


# torch.compile opens this range around every call of generated code; it is not part of the model.
_NOISE = re.compile(r"## Call CompiledFxGraph .*##$")
# PyTorch opens these operators around others, which describe the work better.
_WRAPPER = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction(?:Backward)?$"
    r"|autograd::engine::evaluate_function"
)


def folded_name(name: str) -> str:
    """`name` with "*" for its numbers; digits before a letter, as in "conv2d", are no number."""
    return re.sub(_NUMBER, "*", name)


def paths_at(paths: Sequence[str], path: str) -> list[int]:
    """The indices of `path` in `paths`; of all that it stands for if it is folded; none if it is
    not there."""
    if path in paths:
        return [paths.index(path)]
    stands_for = re.compile(re.escape(path).replace(re.escape("*"), rf"(?:\*|{_NUMBER})"))
    return [index for index, candidate in enumerate(paths) if stands_for.fullmatch(candidate)]


def distinct_pairs(
    left: Int64s, right: NDArray[np.integer]
) -> tuple[list[tuple[int, int]], Int64s]:
    """The distinct rows of two columns in order (`right` is >= 0), and the number of each row."""
    count = int(right.max(initial=0)) + 1
    codes, number = np.unique(left * count + right, return_inverse=True)
    return [divmod(code, count) for code in codes.tolist()], number


@dataclass(slots=True, eq=False)
class PathTree:
    """Nodes by number; a parent's number is smaller than its children's.

    `operator` marks the nodes that are framework operators instead of ranges, `inferred` those that
    were found in the names of kernels (`structure.paths`). Ranges nested n deep
    have paths of n² names in all, so both one path and all paths together are limited
    (`MAX_PATH`, `MAX_PATHS` characters); `cut` counts the ranges and operators beyond that.
    """

    ids: dict[tuple[int, str], int] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    operator: list[bool] = field(default_factory=list)
    inferred: list[bool] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    all_lengths: int = 0
    cut: int = 0

    def __len__(self) -> int:
        return len(self.parents)

    def child(
        self, parent: int, name: str, *, operator: bool = False, inferred: bool = False
    ) -> int:
        """The node of that name below `parent` (`NO_NODE`: at the top), added if it is new; beyond
        the limits `parent` itself."""
        if (known := self.ids.get((parent, name))) is not None:
            return known
        top = parent == NO_NODE
        length = len(name) if top else self.lengths[parent] + 1 + len(name)
        if length > MAX_PATH or self.all_lengths + length > MAX_PATHS:
            self.cut += 1
            return parent
        self.ids[parent, name] = len(self.parents)
        self.parents.append(parent)
        self.depths.append(0 if top else self.depths[parent] + 1)
        self.names.append(name)
        self.operator.append(operator)
        self.inferred.append(inferred)
        self.lengths.append(length)
        self.all_lengths += length
        return len(self.parents) - 1

    def chain(self, node: int) -> list[int]:
        nodes = []
        while node != NO_NODE:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def within(self, tops: Sequence[int]) -> Bools:
        """For each node, whether it is one of `tops` or below one."""
        inside = np.zeros(len(self), dtype=np.bool_)
        inside[tops] = True
        for node in range(min(tops, default=len(self)), len(self)):
            parent = self.parents[node]
            inside[node] |= parent != NO_NODE and inside[parent]
        return inside

    def paths(self) -> tuple[str, ...]:
        full: list[str] = []
        for parent, name in zip(self.parents, self.names, strict=True):
            full.append(name if parent == NO_NODE else f"{full[parent]}/{name}")
        return tuple(full)

    def add_up(self, exclusive: Int64s) -> Int64s:
        """Each node's value plus those of all nodes below it; `exclusive` is [nodes, …]."""
        total = exclusive.copy()
        parents, depths = np.array(self.parents), np.array(self.depths)
        for depth in range(int(depths.max(initial=0)), 0, -1):
            level = np.flatnonzero(depths == depth)
            np.add.at(total, parents[level], total[level])
        return total


def path_part(name: str) -> str | None:
    """A range's name in paths: step markers lose their number; None for a range to leave out."""
    return None if _NOISE.match(name) else step_kind(name)


def is_wrapper(name: str) -> bool:
    """Whether PyTorch opens an operator of this name around others, which describe the work."""
    return _WRAPPER.match(name) is not None


def host_activity(trace: Trace, at_ns: int, pid: int, tid: int) -> HostActivity:
    """The thread's open ranges as a path, its deepest operator and its CUDA call at `at_ns`.

    An event is open from its start until just before its end. Of nested calls (a driver call
    below a runtime call), the outermost counts: it is the one that the program made. Scans all host
    events up to that time, so it is meant for the few gaps that are listed.
    """
    path = PathTree()
    node = NO_NODE
    for name in _open(trace, trace.ranges, at_ns, pid, tid):
        if (part := path_part(name)) is not None:
            node = path.child(node, part)
    operators = _open(trace, trace.cpu_ops, at_ns, pid, tid)
    calls = _open(trace, trace.calls, at_ns, pid, tid)
    return HostActivity(
        range=path.paths()[node] if node != NO_NODE else None,
        operator=operators[-1] if operators else None,
        call=calls[0] if calls else None,
    )


def host_nodes(trace: Trace, tree: PathTree, times: HostTimes, below_markers: Bools) -> Int64s:
    """The node of the innermost range open at each time on its thread, `NO_NODE` for none.

    If no range is open, the outermost open operator replaces it, as a node of its own; if only a
    step marker is open, the operator is added below it where `below_markers` is set.
    """
    node = _innermost_range(trace, tree, times)
    steps = np.array([is_step_name(name) for name in tree.names], dtype=np.bool_)
    bare = node == NO_NODE
    marked = np.flatnonzero(~bare & below_markers)
    bare[marked] = steps[node[marked]]
    rows = np.flatnonzero(bare)
    operator = _outermost_operator(trace, times.take(rows))
    rows, operator = rows[operator >= 0], operator[operator >= 0]
    pairs, pair = distinct_pairs(node[rows], trace.cpu_ops.name[operator])
    below = [tree.child(top, trace.names[name], operator=True) for top, name in pairs]
    node[rows] = np.array(below, dtype=np.int64)[pair]
    return node


def operators_of(operators: HostEvents, external_id: Int64s) -> Int64s:
    """The one operator with each external id; -1 if there is none or more than one."""
    ids, row, count = np.unique(operators.external_id, return_index=True, return_counts=True)
    single = (count == 1) & (ids > 0)
    return np.append(row[single], -1)[rows_in(ids[single], external_id)]


def _open(trace: Trace, events: HostEvents, at_ns: int, pid: int, tid: int) -> list[str]:
    """Names of the thread's open events, outermost first."""
    begun = events.take(slice(int(events.start_ns.searchsorted(at_ns, side="right"))))
    is_open = (begun.end_ns > at_ns) & (begun.tid == tid) & (begun.pid == pid)
    return [trace.names[name] for name in begun.name[is_open].tolist()]


def _innermost_range(trace: Trace, tree: PathTree, times: HostTimes) -> Int64s:
    ranges, at_ns = trace.ranges, times.at_ns
    node = np.full(len(at_ns), NO_NODE, dtype=np.int64)
    parts = {name: path_part(trace.names[name]) for name in np.unique(ranges.name).tolist()}
    shown = np.isin(ranges.name, [name for name, part in parts.items() if part is not None])
    for range_rows, time_rows in threads_at(ranges, np.flatnonzero(shown), times):
        of_thread = ranges.take(range_rows)
        nodes: list[int] = []
        for outer, name in zip(around(of_thread).tolist(), of_thread.name.tolist(), strict=True):
            nodes.append(tree.child(nodes[outer] if outer >= 0 else NO_NODE, parts[name] or ""))
        changed_ns, row = open_changes(of_thread)
        open_since = np.searchsorted(changed_ns, at_ns[time_rows], side="right") - 1
        node[time_rows] = np.array([*nodes, NO_NODE])[row[open_since]]
    return node


def _outermost_operator(trace: Trace, times: HostTimes) -> Int64s:
    """The outermost open operator that is not a wrapper, else the wrapper; -1 for none."""
    operators, at_ns = trace.cpu_ops, times.at_ns
    operator_of_time = np.full(len(at_ns), -1, dtype=np.int64)
    wraps = trace.by_name(operators.name, _WRAPPER.match)
    for chosen in (wraps, ~wraps):
        for operator_rows, time_rows in threads_at(operators, np.flatnonzero(chosen), times):
            outer = operator_rows[outermost(operators.take(operator_rows))]
            inside = containing(operators.take(outer), at_ns[time_rows])
            operator_of_time[time_rows[inside >= 0]] = outer[inside[inside >= 0]]
    return operator_of_time
