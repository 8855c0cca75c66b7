"""Replays of which some ops are missing, read by the node numbers that the profiler gives."""

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.replays import EXACT, NONE, Replays
from decodescope.analyzer.trace import GpuOps, Int64s

_Replay = tuple[int, int, int]


def follow_graph_nodes(
    ops: GpuOps, replayed: NDArray[np.bool_], node: Int64s, op_step: Int64s, found: Replays
) -> None:
    """Give an op the partner that its graph node has in a replay whose alignment is certain.

    Both must be the same launch of the same graph within their steps and below the same range
    (`node`); every op of such a replay is then decided by its node alone. CUPTI numbers a node
    `graph id << 32 | number within the graph`.
    """
    rows = np.flatnonzero(replayed & (ops.graph_node_id >= 0) & (op_step >= 0))
    rows = rows[np.argsort(ops.launch[rows], kind="stable")]
    certain: dict[_Replay, tuple[Int64s, Int64s]] = {}
    doubtful: list[tuple[_Replay, Int64s]] = []
    launched: dict[_Replay, int] = {}
    for mine in np.split(rows, np.flatnonzero(np.diff(ops.launch[rows])) + 1):
        if not len(mine):
            continue
        graph = int(ops.graph_node_id[mine[0]]) >> 32
        in_step = (int(op_step[mine[0]]), int(node[mine[0]]), graph)
        launched[in_step] = launched.get(in_step, -1) + 1
        replay = (in_step[1], graph, launched[in_step])
        if (found.confidence[mine] == EXACT).all():
            if replay not in certain:
                order = mine[np.argsort(ops.graph_node_id[mine])]
                certain[replay] = (ops.graph_node_id[order], found.reference_op[order])
        else:
            doubtful.append((replay, mine))
    for replay, mine in doubtful:
        if replay in certain:
            nodes, partners = certain[replay]
            at = np.minimum(np.searchsorted(nodes, ops.graph_node_id[mine]), len(nodes) - 1)
            known = nodes[at] == ops.graph_node_id[mine]
            found.reference_op[mine] = np.where(known, partners[at], -1)
            found.confidence[mine] = np.where(known, EXACT, NONE)
