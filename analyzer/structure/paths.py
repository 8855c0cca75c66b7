"""Range paths from what was found in the names, for ops that no range of a layer contains."""

import re
from dataclasses import replace

import numpy as np

from decodescope.analyzer.attribution.range_tree import GRAPH_REPLAY, NO_NODE, PathTree
from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.attribution.replays import PARTIAL
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.structure.step_structure import NO_LAYER, Structure
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s

# layer.3, layers.3, h.3, blocks.3, Qwen3DecoderLayer_3, GPT2Block_3
LAYER_PART = re.compile(r"(?:layers?|h|blocks?|\w*(?:Layer|Block))[._](\d{1,6})$")


def layer_of_nodes(tree: PathTree) -> Int64s:
    """The layer number in each node's path, by the outermost part that has one; -1 for none."""
    layer = np.full(len(tree), NO_LAYER, dtype=np.int64)
    for node, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True)):
        above = int(layer[parent]) if parent != NO_NODE else NO_LAYER
        layer_part = LAYER_PART.fullmatch(name) if above == NO_LAYER else None
        layer[node] = int(layer_part[1]) if layer_part else above
    return layer


def with_inferred_paths(timeline: Timeline, ranges: Ranges, structure: Structure) -> Ranges:
    """The ranges with paths such as `step/layer.3/qkv` for the ops of a step with layers whose own
    path names no range of the model: an operator, a graph replay, or the step alone.

    Their confidence is PARTIAL. A launch call that launched one such op gets its path.
    """
    tree, launches = ranges.tree, timeline.launches
    inside = np.zeros(len(ranges.op_node), dtype=np.bool_)
    for rows, layers in structure.of_step.values():
        if layers is not None:
            inside[rows] = True
    bare = np.append(_bare_nodes(tree), True)
    chosen = np.flatnonzero(inside & bare[ranges.op_node])
    if not len(chosen):
        return ranges
    op_node, call_node = ranges.op_node.copy(), ranges.call_node.copy()
    op_node[chosen] = _nodes(tree, structure, op_node[chosen], chosen)
    single = np.flatnonzero((launches.ops == 1) & ~launches.is_graph)
    moved = np.isin(launches.first_op[single], chosen)
    call_node[single[moved]] = op_node[launches.first_op[single[moved]]]
    confidence = ranges.confidence.copy()
    confidence[chosen] = PARTIAL
    more = len(tree) - len(ranges.node_confidence)
    return replace(
        ranges,
        op_node=op_node,
        call_node=call_node,
        paths=tree.paths(),
        confidence=confidence,
        node_confidence=np.append(ranges.node_confidence, np.full(more, PARTIAL, dtype=np.int8)),
        node_matched=np.append(ranges.node_matched, np.full(more, np.nan)),
    )


def _bare_nodes(tree: PathTree) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """For each node, whether it says nothing about the model: it is an operator, a graph replay, or
    a range that no other range is in (a step marker)."""
    bare = np.zeros(len(tree), dtype=np.bool_)
    for node, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True)):
        above = parent == NO_NODE or bool(bare[parent])
        bare[node] = above and (tree.operator[node] or name == GRAPH_REPLAY or parent == NO_NODE)
    return bare


def _nodes(tree: PathTree, structure: Structure, node: Int64s, ops: Int64s) -> Int64s:
    """The inferred node of each op, whose node is `node`."""
    layer, role = structure.layer[ops].astype(np.int64), structure.role[ops].astype(np.int64)
    part = np.where(layer != NO_LAYER, layer + 2, np.where(structure.prologue[ops], 0, 1))
    rows, which = np.unique(np.column_stack((node, part, role)), axis=0, return_inverse=True)
    nodes = []
    for top, place, number in rows.tolist():
        while top != NO_NODE and (tree.operator[top] or tree.names[top] == GRAPH_REPLAY):
            top = tree.parents[top]
        name = ("prologue", "epilogue")[place] if place < 2 else f"layer.{place - 2}"
        nodes.append(tree.child(tree.child(top, name, inferred=True), ROLES[number], inferred=True))
    return np.array(nodes, dtype=np.int64)[which.ravel()]
