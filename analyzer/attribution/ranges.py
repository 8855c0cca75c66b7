"""Which range path each op and each launch call belongs to.

An op belongs to the innermost range that was open on the launching thread when its launch call
began, and to every range around that one; without an open range, to its framework operator. In a
CPU capture, the operator's own start counts. The ops of a graph replay get the paths of the same
ops of an ungraphed step; an op that is not found there belongs to a child `(graph replay)` of the
range around the launch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_tree import (
    GRAPH_REPLAY,
    NO_NODE,
    OWN_OPS,
    PathTree,
    distinct_pairs,
    host_nodes,
    operators_of,
    paths_at,
)
from decodescope.analyzer.attribution.replays import (
    EXACT,
    NONE,
    PARTIAL,
    GraphReplays,
    Partners,
    find_partners,
    parts_below,
    reference_path,
)
from decodescope.analyzer.schema.graph_reference import GraphReference, ReplaySource
from decodescope.analyzer.schema.report import Attribution
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Which range path each op and each launch call belongs to.

    `op_node` (one for each op of the trace) and `call_node` (one for each row of `LaunchCalls`)
    index `paths` and the nodes of `tree`; -1 means none. The node of a call is the range around it,
    or `(graph replay)` for a graph launch without any partner in the reference. `confidence` is
    that of each op's path, `node_confidence` that of each path: EXACT, PARTIAL or NONE.
    `node_matched` is the share of the graph launches' ops that have a partner in the reference, NaN
    for paths that are not PARTIAL. `reference_op` is each op's partner in `trace.reference.ops`, -1
    for none.
    """

    op_node: Int64s
    call_node: Int64s
    paths: tuple[str, ...]
    tree: PathTree
    confidence: Int8s
    reference_op: Int64s
    node_confidence: Int8s
    node_matched: NDArray[np.float64]

    def ops_within(self, path: str | None) -> Bools:
        """For each op, whether it belongs to the range `path`, which may be folded, or to one
        inside it; every op does if `path` is None."""
        if path is None:
            return np.ones(len(self.op_node), dtype=np.bool_)
        return np.asarray(np.append(self.nodes_within(path), False)[self.op_node])

    def nodes_within(self, path: str) -> Bools:
        """The same for each path; of `path/(own ops)` only the range itself."""
        tops = paths_at(self.paths, path.removesuffix(f"/{OWN_OPS}"))
        own = np.isin(np.arange(len(self.tree)), tops)
        return own if path.endswith(f"/{OWN_OPS}") else self.tree.within(tops)


def find_ranges(timeline: Timeline) -> Ranges:
    """The path of every op and launch call."""
    trace, launches = timeline.trace, timeline.launches
    tree = PathTree()
    row = launches.rows_of_ops(trace)
    replayed = np.append(launches.is_graph, False)[row]
    launched_at, call_node = _host_nodes(trace, launches, tree, row)
    reference = trace.reference or GraphReference(())
    replays = GraphReplays(timeline, tree, launched_at, replayed, reference)
    partners = find_partners(replays)
    op_node = _enter_replays(replays, partners)
    paired = np.bincount(row[partners.reference_op >= 0], minlength=len(launches))
    for graph in np.flatnonzero(launches.is_graph & (call_node >= 0) & (paired == 0)).tolist():
        call_node[graph] = tree.child(int(call_node[graph]), GRAPH_REPLAY)
    matched = np.full(len(row), np.nan)
    matched[replayed] = (paired / launches.ops)[row[replayed]]
    confidence = np.where(replayed, partners.confidence, EXACT)
    node_confidence, node_matched = _node_confidences(
        tree, launched_at, op_node, np.flatnonzero(replayed & (confidence == PARTIAL)), matched
    )
    return Ranges(
        op_node=op_node,
        call_node=call_node,
        paths=tree.paths(),
        tree=tree,
        confidence=np.where(op_node == NO_NODE, NONE, confidence).astype(np.int8),
        reference_op=partners.reference_op,
        node_confidence=node_confidence,
        node_matched=node_matched,
    )


def replay_sources(trace: Trace, reference_op: Int64s) -> dict[ReplaySource, int]:
    """How many ops of graph replays have their path from each source."""
    counts: dict[ReplaySource, int] = {}
    if trace.reference is None:
        return counts
    partners, number = np.unique(reference_op[reference_op >= 0], return_counts=True)
    of_step = trace.reference.of_step
    for partner, ops in zip(partners.tolist(), number.tolist(), strict=True):
        annotated = trace.reference.ops[partner].node is not None
        source: ReplaySource = "annotations" if annotated else "step" if of_step else "capture"
        counts[source] = counts.get(source, 0) + ops
    return counts


def attribution(ranges: Ranges, inferred: int = 0) -> Attribution:
    """How many ops have a path, by its confidence; ops without one count as "none". `inferred` is
    how many have another one that was found in their names."""
    exact, partial, none = np.bincount(ranges.confidence, minlength=3).tolist()
    return Attribution(exact=exact, partial=partial, none=none, inferred=inferred)


def _host_nodes(
    trace: Trace, launches: LaunchCalls, tree: PathTree, row: Int64s
) -> tuple[Int64s, Int64s]:
    """The host's path at the launch of each op, and at each launch call; `row` is the row of each
    op's call in `launches`, -1 for none.

    If its launch call has no path, an op gets that of the operator with its external id.
    """
    ops, operators = trace.ops, trace.cpu_ops
    if trace.on_cpu:
        every = np.ones(len(ops), dtype=np.bool_)
        return host_nodes(trace, tree, trace.cpu_op_starts, every), row[:0]
    launched = trace.calls.starts.take(launches.call)
    call_node = host_nodes(trace, tree, launched, ~launches.is_graph)
    op_node = np.append(call_node, NO_NODE)[row]
    lost = np.flatnonzero((op_node == NO_NODE) & (ops.external_id > 0))
    operator = operators_of(operators, ops.external_id[lost])
    lost, operator = lost[operator >= 0], operator[operator >= 0]
    op_node[lost] = host_nodes(trace, tree, operators.starts.take(operator), row[lost] < 0)
    linked = lost[row[lost] >= 0]
    call_node[row[linked]] = op_node[linked]
    return op_node, call_node


def _enter_replays(replays: GraphReplays, partners: Partners) -> Int64s:
    """Each op's node, given that of its launch: replayed ops move to their partner's path, or to
    `(graph replay)` if they have no partner."""
    tree, node = replays.tree, replays.node
    entered = node.copy()
    paired = np.flatnonzero(partners.reference_op >= 0)
    pairs, pair = distinct_pairs(node[paired], partners.reference_op[paired])
    nodes = []
    for top, partner in pairs:
        op, of_step = replays.reference.ops[partner], replays.reference.of_step
        above = reference_path(replays, top) or "" if of_step else ""
        below = op.path.removeprefix(above).strip("/")
        parts = below.split("/") if below else []
        for part in parts if of_step else parts_below(replays.names_around(top), parts):
            top = tree.child(top, part, operator=part == op.operator)
        nodes.append(top)
    entered[paired] = np.array(nodes, dtype=np.int64)[pair]
    lost = np.flatnonzero(replays.replayed & (partners.reference_op < 0) & (node != NO_NODE))
    tops, which = np.unique(node[lost], return_inverse=True)
    unknown = [tree.child(top, GRAPH_REPLAY) for top in tops.tolist()]
    entered[lost] = np.array(unknown, dtype=np.int64)[which]
    return entered


def _node_confidences(
    tree: PathTree,
    launched_at: Int64s,
    op_node: Int64s,
    partial: Int64s,
    matched: NDArray[np.float64],
) -> tuple[Int8s, NDArray[np.float64]]:
    """The confidence of each path, and the share of ops matched if it is PARTIAL (else NaN).

    A path is PARTIAL if one of its ops is (`partial` lists those) and the path is below the range
    around that op's launch: the op certainly belongs to that range itself. Its share is the mean of
    `matched`, the shares of the launches, over those ops.
    """
    confidence = np.full(len(tree), EXACT, dtype=np.int8)
    confidence[[name == GRAPH_REPLAY for name in tree.names]] = NONE
    total, ops = np.zeros((2, len(tree)))
    pairs, pair = distinct_pairs(launched_at[partial], op_node[partial])
    sums = np.bincount(pair, weights=matched[partial], minlength=len(pairs)).tolist()
    counts = np.bincount(pair, minlength=len(pairs)).tolist()
    for (top, node), of_pair, count in zip(pairs, sums, counts, strict=True):
        while node != top:
            confidence[node] = PARTIAL
            total[node] += of_pair
            ops[node] += count
            node = tree.parents[node]
    with np.errstate(invalid="ignore"):
        return confidence, total / ops
