"""Which range path each op and each launch call belongs to.

An op belongs to the innermost range that was open on the launching thread when its launch call
began, and to every range around that one; where the host opened none, to its framework operator.
In a CPU capture the operator's own start counts. The ops of a graph replay stand where the same
ops of an ungraphed step do; what is not found there stands under the range around the launch, as a
child `(graph replay)`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.graph_nodes import follow_graph_nodes
from decodescope.analyzer.attribution.host_paths import host_nodes
from decodescope.analyzer.attribution.range_tree import GRAPH_REPLAY, NO_NODE, PathTree
from decodescope.analyzer.attribution.replay_paths import enter_replays, node_confidences
from decodescope.analyzer.attribution.replays import EXACT, NONE, PARTIAL, attribute_replays
from decodescope.analyzer.schema.report import Attribution
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import HostEvents, Int8s, Int64s, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Which range path each op and each launch call belongs to.

    `op_node` (one for each op of the trace) and `call_node` (one for each row of `LaunchCalls`)
    index `paths` and `parents`; -1 stands for none. A call stands at the range around it, the
    launch of a graph of which nothing was found in the reference at `(graph replay)`.
    `confidence` is that of each op's path, `node_confidence` that of each path: EXACT, PARTIAL or
    NONE. `node_matched` is the share of the graph launches' ops that have a partner in the
    reference, NaN of paths that are not PARTIAL. `reference_op` is each op's partner in
    `trace.reference.ops`, -1 for none.
    """

    op_node: Int64s
    call_node: Int64s
    paths: tuple[str, ...]
    parents: Int64s
    tree: PathTree
    confidence: Int8s
    reference_op: Int64s
    node_confidence: Int8s
    node_matched: NDArray[np.float64]


def find_ranges(trace: Trace, launches: LaunchCalls, steps: Steps) -> Ranges:
    """The path of every op and launch call."""
    tree = PathTree()
    row = _launch_rows(trace, launches)
    replayed = row >= 0
    replayed[replayed] = launches.is_graph[row[replayed]]
    launched_at, call_node = _host_nodes(trace, launches, tree, row)
    found = attribute_replays(trace, launched_at, replayed, steps.op_step, tree)
    follow_graph_nodes(trace.ops, replayed, launched_at, steps.op_step, found)
    op_node = enter_replays(trace, tree, launched_at, replayed, found)
    partners = np.bincount(row[found.reference_op >= 0], minlength=len(launches))
    for graph in np.flatnonzero(launches.is_graph & (call_node >= 0) & (partners == 0)).tolist():
        call_node[graph] = tree.child(int(call_node[graph]), GRAPH_REPLAY)
    matched = np.full(len(row), np.nan)
    matched[replayed] = (partners / launches.ops)[row[replayed]]
    confidence = np.where(replayed, found.confidence, EXACT)
    node_confidence, node_matched = node_confidences(
        tree, launched_at, op_node, np.flatnonzero(replayed & (confidence == PARTIAL)), matched
    )
    return Ranges(
        op_node=op_node,
        call_node=call_node,
        paths=tree.paths(),
        parents=np.array(tree.parents, dtype=np.int64),
        tree=tree,
        confidence=np.where(op_node == NO_NODE, NONE, confidence).astype(np.int8),
        reference_op=found.reference_op,
        node_confidence=node_confidence,
        node_matched=node_matched,
    )


def attribution(ranges: Ranges) -> Attribution:
    """How many ops have a path, by its confidence; ops without one count as "none"."""
    exact, partial, none = np.bincount(ranges.confidence, minlength=3).tolist()
    return Attribution(exact=exact, partial=partial, none=none)


def _launch_rows(trace: Trace, launches: LaunchCalls) -> Int64s:
    """The row of `launches` of each op's launch call, -1 for none."""
    row_of_call = np.full(len(trace.calls) + 1, -1, dtype=np.int64)
    row_of_call[launches.call] = np.arange(len(launches))
    return np.asarray(row_of_call[trace.ops.launch])


def _host_nodes(
    trace: Trace, launches: LaunchCalls, tree: PathTree, row: Int64s
) -> tuple[Int64s, Int64s]:
    """The host's path at the launch of each op, and at each launch call.

    An op whose launch call tells no path goes by the operator with its external id.
    """
    ops, calls, operators = trace.ops, trace.calls, trace.cpu_ops
    if trace.on_cpu:
        pid = np.full(len(ops), operators.pid[0] if len(operators) else 0)
        every = np.ones(len(ops), dtype=np.bool_)
        return host_nodes(trace, tree, ops.start_ns, pid, ops.stream, every), row[:0]
    made = launches.call
    call_node = host_nodes(
        trace, tree, calls.start_ns[made], calls.pid[made], calls.tid[made], ~launches.is_graph
    )
    op_node = np.append(call_node, NO_NODE)[row]
    lost = np.flatnonzero((op_node == NO_NODE) & (ops.external_id > 0))
    operator = _operators_of(operators, ops.external_id[lost])
    lost, operator = lost[operator >= 0], operator[operator >= 0]
    op_node[lost] = host_nodes(
        trace,
        tree,
        operators.start_ns[operator],
        operators.pid[operator],
        operators.tid[operator],
        row[lost] < 0,
    )
    linked = lost[row[lost] >= 0]
    call_node[row[linked]] = op_node[linked]
    return op_node, call_node


def _operators_of(operators: HostEvents, external_id: Int64s) -> Int64s:
    """The one operator with each external id; -1 where there is none or more than one."""
    if not len(external_id) or not len(operators):
        return np.full(len(external_id), -1, dtype=np.int64)
    order = np.argsort(operators.external_id, kind="stable")
    ids = operators.external_id[order]
    first = np.searchsorted(ids, external_id, side="left")
    found = np.searchsorted(ids, external_id, side="right") - first == 1
    return np.where(found, order[np.minimum(first, len(ids) - 1)], -1)
