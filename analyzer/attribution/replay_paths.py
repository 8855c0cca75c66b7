"""Puts the ops of graph replays below the paths of their partners in the reference."""

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_tree import GRAPH_REPLAY, NO_NODE, PathTree
from decodescope.analyzer.attribution.replays import EXACT, NONE, PARTIAL, Replays, reference_path
from decodescope.analyzer.trace import Int8s, Int64s, Trace


def enter_replays(
    trace: Trace, tree: PathTree, node: Int64s, replayed: NDArray[np.bool_], found: Replays
) -> Int64s:
    """Each op's node, given that of its launch: replayed ops move to their partner's path, or to
    `(graph replay)` where they have no partner."""
    entered = node.copy()
    paired = np.flatnonzero(found.reference_op >= 0)
    if trace.reference is not None and len(paired):
        count = len(trace.reference.ops)
        pairs, pair = np.unique(
            node[paired] * count + found.reference_op[paired], return_inverse=True
        )
        nodes = []
        for code in pairs.tolist():
            top, partner = divmod(code, count)
            above = reference_path(trace.reference, tree, top) or ""
            below = trace.reference.ops[partner].path.removeprefix(above).strip("/")
            for part in below.split("/") if below else ():
                top = tree.child(top, part)
            nodes.append(top)
        entered[paired] = np.array(nodes, dtype=np.int64)[pair]
    lost = np.flatnonzero(replayed & (found.reference_op < 0) & (node != NO_NODE))
    tops, which = np.unique(node[lost], return_inverse=True)
    unknown = [tree.child(top, GRAPH_REPLAY) for top in tops.tolist()]
    entered[lost] = np.array(unknown, dtype=np.int64)[which]
    return entered


def node_confidences(
    tree: PathTree,
    launched_at: Int64s,
    op_node: Int64s,
    partial: Int64s,
    matched: NDArray[np.float64],
) -> tuple[Int8s, NDArray[np.float64]]:
    """How sure each path is, and the share of ops matched where it is PARTIAL (else NaN).

    A path is PARTIAL if one of its ops is (`partial` lists those) and the path lies below the range
    around that op's launch: that the op belongs to the range itself is certain. Its share is the
    mean of `matched`, the shares of the launches, over those ops.
    """
    confidence = np.full(len(tree), EXACT, dtype=np.int8)
    confidence[[name == GRAPH_REPLAY for name in tree.names]] = NONE
    total, ops = np.zeros((2, len(tree)))
    pairs, pair = np.unique(
        launched_at[partial] * len(tree) + op_node[partial], return_inverse=True
    )
    sums = np.bincount(pair, weights=matched[partial], minlength=len(pairs)).tolist()
    counts = np.bincount(pair, minlength=len(pairs)).tolist()
    for code, of_pair, count in zip(pairs.tolist(), sums, counts, strict=True):
        top, node = divmod(code, len(tree))
        while node != top:
            confidence[node] = PARTIAL
            total[node] += of_pair
            ops[node] += count
            node = tree.parents[node]
    with np.errstate(invalid="ignore"):
        return confidence, total / ops
