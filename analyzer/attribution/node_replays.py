"""The paths of graph replays from their nodes: of captured graphs, or annotated by torch."""

import re
from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.attribution.captured_replays import (
    CapturedReplays,
    Found,
    Launch,
    follow_nodes,
    graph_launches,
)
from decodescope.analyzer.attribution.partners import EXACT, PARTIAL, Partners, no_partners
from decodescope.analyzer.attribution.range_tree import PathTree
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int64s, Trace

# vLLM: `execute_<tokens>_context_<requests>(…)_generation_<requests>(…)`, before that
# `execute_context_<requests>(<tokens>)_generation_<requests>(<tokens>)`; SGLang: `step[… bs=N …]`.
_TOKENS = re.compile(r"execute_(\d{1,9})_context_")
_TWO_TOKENS = re.compile(r"execute_context_\d+\((\d{1,9})\)_generation_\d+\((\d{1,9})\)")
_BATCH = re.compile(r"step\s?\[.*?\bbs=(\d{1,9})\b")
_INSTANCE = re.compile(r"\[\d+\]$")


def attribute_nodes(timeline: Timeline, tree: PathTree, node: Int64s, replayed: Bools) -> Partners:
    """The partner of each replayed op among the nodes of `Trace.reference`: those of captured
    graphs, else the one that torch annotated.

    `node` is the range around each op's launch; `replayed` marks the ops of graph launches.
    """
    trace = timeline.trace
    found = no_partners(len(trace.ops))
    reference = trace.reference
    if reference is None:
        return found
    if reference.graphs:
        launches, nodes, _ = match_captured(timeline, tree, node, replayed, reference)
        for launch, one in zip(launches, nodes, strict=True):
            if one is not None:
                mine = one.partner >= 0
                found.reference_op[launch.ops[mine]] = one.partner[mine]
                found.confidence[launch.ops[mine]] = EXACT if one.certain else PARTIAL
    _follow_annotations(trace, replayed, reference, found)
    return found


def match_captured(
    timeline: Timeline, tree: PathTree, node: Int64s, replayed: Bools, reference: GraphReference
) -> tuple[list[Launch], list[Found | None], CapturedReplays]:
    """The graph launches of a trace, the captured graph that each ran, and what matched them."""
    trace = timeline.trace
    rows = np.flatnonzero(replayed)
    calls, first = np.unique(trace.ops.launch[rows], return_index=True)
    tops = node[rows[first]].tolist()
    batches = {top: batch_of([tree.names[one] for one in tree.chain(top)]) for top in set(tops)}
    batch = {call: batches[top] for call, top in zip(calls.tolist(), tops, strict=True)}
    launches = graph_launches(trace, rows, timeline.steps.op_step, batch)
    matcher = CapturedReplays(trace, reference)
    found = matcher.find(launches)
    follow_nodes(trace, launches, found)
    return launches, found, matcher


def batch_of(names: Sequence[str]) -> int | None:
    """The tokens of the step that the ranges around a launch name, None if none does; an inner
    range counts before an outer one."""
    for name in reversed(names):
        if one := _TOKENS.search(name) or _BATCH.search(name):
            return int(one[1])
        if both := _TWO_TOKENS.search(name):
            return int(both[1]) + int(both[2])
    return None


def parts_below(tree: PathTree, top: int, parts: Sequence[str]) -> Sequence[str]:
    """The parts of a node's path that the ranges around its launch do not have already: modules
    around the capture may be open around the launch too."""
    around = [tree.names[one] for one in tree.chain(top)]
    own = [_INSTANCE.sub("", part) for part in parts[:-1]]
    for shared in range(min(len(around), len(own)), 0, -1):
        if around[-shared:] == own[:shared]:
            return parts[shared:]
    return parts


def _follow_annotations(
    trace: Trace, replayed: Bools, reference: GraphReference, found: Partners
) -> None:
    """Ops without a partner get that of their annotated node."""
    rows = [(op.node, row) for row, op in enumerate(reference.ops) if op.node is not None]
    left = np.flatnonzero(replayed & (found.reference_op < 0) & (trace.ops.graph_node_id > 0))
    if not rows or not len(left):
        return
    nodes, partners = np.array(sorted(rows), dtype=np.int64).T
    node_id = trace.ops.graph_node_id[left]
    at = np.minimum(np.searchsorted(nodes, node_id), len(nodes) - 1)
    known = nodes[at] == node_id
    found.reference_op[left[known]] = partners[at[known]]
    found.confidence[left[known]] = EXACT
