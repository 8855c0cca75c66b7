"""The partner of each op of a CUDA graph replay: an op of an ungraphed step, or a graph node.

A replay has no host ranges. The same step, run once without its graph, has them
(`GraphReference`), and it runs the same ops in the same order on each stream. So the ops of a step
are aligned by name with the reference's ops below the range that launched the graph. Ops launched
directly between graphs take part as landmarks and keep their own path. Where the reference holds
captured graphs or annotations, the nodes of the graph are the partners.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.attribution.alignment import OpSequence, align_step
from decodescope.analyzer.attribution.captured_replays import (
    CapturedReplays,
    GraphLaunch,
    follow_nodes,
    graph_launches,
)
from decodescope.analyzer.attribution.graph_match import GraphMatch
from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.step_report import Confidence
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, GpuOps, Int8s, Int64s, Trace, grouped, rows_in

_Replay = tuple[int, int, int]

# vLLM: `execute_<tokens>_context_<requests>(…)_generation_<requests>(…)`, before that
# `execute_context_<requests>(<tokens>)_generation_<requests>(<tokens>)`; SGLang: `step[… bs=N …]`.
_TOKENS = re.compile(r"execute_(\d{1,9})_context_")
_TWO_TOKENS = re.compile(r"execute_context_\d+\((\d{1,9})\)_generation_\d+\((\d{1,9})\)")
_BATCH = re.compile(r"step\s?\[.*?\bbs=(\d{1,9})\b")
_INSTANCE = re.compile(r"\[\d+\]$")
EXACT, PARTIAL, NONE = range(3)
CONFIDENCES: tuple[Confidence, ...] = ("exact", "partial", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """The result for each op of the trace: `reference_op` indexes the reference's ops (-1: none),
    `confidence` is EXACT, PARTIAL or NONE."""

    reference_op: Int64s
    confidence: Int8s


def find_partners(timeline: Timeline, tree: PathTree, node: Int64s, replayed: Bools) -> Partners:
    """Find the partner in the reference of every op that a graph launch put on a device.

    `node` is the range around each op's launch; `replayed` marks the ops of graph launches. Without
    a reference, no op has a partner.
    """
    trace = timeline.trace
    count = len(trace.ops)
    partners = Partners(np.full(count, -1, dtype=np.int64), np.full(count, NONE, dtype=np.int8))
    if trace.reference is not None and replayed.any():
        attribute = _attribute_replays if trace.reference.of_step else _attribute_nodes
        attribute(timeline, tree, node, replayed, trace.reference, partners)
    return partners


def _attribute_replays(
    timeline: Timeline,
    tree: PathTree,
    node: Int64s,
    replayed: Bools,
    reference: GraphReference,
    partners: Partners,
) -> None:
    """Fill in the partners among the ops of an ungraphed step."""
    trace, op_step = timeline.trace, timeline.steps.op_step
    names, sequence = _common_names(trace, reference)
    in_step = np.where(op_step >= 0, node, NO_NODE)
    for top in np.unique(in_step[replayed & (in_step != NO_NODE)]).tolist():
        below = _reference_below(reference, tree, top)
        if len(below):
            inside = np.flatnonzero((in_step != NO_NODE) & tree.within([top])[in_step])
            own = replayed & (in_step == top)
            steps = list(grouped(inside, op_step))
            _attribute(trace.ops, names, steps, own, (below, sequence.take(below)), partners)
    _follow_graph_nodes(trace.ops, node, replayed, op_step, partners)


def reference_path(reference: GraphReference, tree: PathTree, node: int) -> str | None:
    """The node's path from the reference's step marker down; None outside such a marker."""
    marker = next((op.path.split("/")[0] for op in reference.ops if op.path), None)
    names = [tree.names[ancestor] for ancestor in tree.chain(node)]
    return "/".join(names[names.index(marker) :]) if marker in names else None


def _reference_below(reference: GraphReference, tree: PathTree, top: int) -> Int64s:
    """The reference's ops at or below the range `top`."""
    prefix = reference_path(reference, tree, top)
    if prefix is None:
        return np.zeros(0, dtype=np.int64)
    inside = [op.path == prefix or op.path.startswith(prefix + "/") for op in reference.ops]
    return np.flatnonzero(inside)


def _attribute(
    ops: GpuOps,
    names: Int64s,
    steps: Sequence[Int64s],
    replayed: Bools,
    wanted: tuple[Int64s, OpSequence],
    partners: Partners,
) -> None:
    """Align the replayed ops of each step with some of the reference's ops (`wanted`: their indices
    and their sequence); `names` are the numbers of all ops' names."""
    below, sequence = wanted
    by_nodes = bool((ops.graph_node_id[replayed] >= 0).all())
    known: dict[tuple[bytes, ...], tuple[Int64s, bool]] = {}
    for op_rows in steps:
        own = replayed[op_rows]
        if not own.any():
            continue
        step = OpSequence(names[op_rows], _device_streams(ops.device[op_rows], ops.stream[op_rows]))
        order = None
        if by_nodes:
            order = np.lexsort((ops.graph_node_id[op_rows], ops.launch[op_rows]))
        shape = (step.name, step.stream, own, *(() if order is None else (order,)))
        key = tuple(column.tobytes() for column in shape)
        if key not in known:
            known[key] = align_step(step, own, order, sequence)
        partner, certain = known[key]
        paired = partner >= 0
        partners.reference_op[op_rows[paired]] = below[partner[paired]]
        partners.confidence[op_rows[paired]] = EXACT if certain else PARTIAL


def _common_names(trace: Trace, reference: GraphReference) -> tuple[Int64s, OpSequence]:
    """One number for each name, the same in the trace and in the reference: those of the trace's
    ops, and the reference's ops as a sequence."""
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        # In a replay, the profiler names the memory of a copy or fill differently.
        return numbers.setdefault(kernel_meaning(name).memory or name, len(numbers))

    table = np.array([number(name) for name in trace.names], dtype=np.int64)
    names = np.array([number(op.name) for op in reference.ops], dtype=np.int64)
    streams = np.array([op.stream for op in reference.ops], dtype=np.int64)
    return table[trace.ops.name], OpSequence(names, streams)


def _device_streams(device: Int64s, stream: Int64s) -> Int64s:
    """A number for each stream of each device."""
    _, devices = np.unique(device, return_inverse=True)
    numbers, streams = np.unique(stream, return_inverse=True)
    return np.asarray(devices * len(numbers) + streams, dtype=np.int64)


def _follow_graph_nodes(
    ops: GpuOps, node: Int64s, replayed: Bools, op_step: Int64s, partners: Partners
) -> None:
    """Give an op the partner of its graph node in a replay whose alignment is certain.

    This attributes replays with missing ops. Both replays must be the same launch of the same graph
    within their steps and below the same range (`node`); the node then decides every op of such a
    replay. CUPTI numbers a node `graph id << 32 | number within the graph`.
    """
    rows = np.flatnonzero(replayed & (ops.graph_node_id >= 0) & (op_step >= 0))
    certain: dict[_Replay, tuple[Int64s, Int64s]] = {}
    doubtful: list[tuple[_Replay, Int64s]] = []
    launched: dict[_Replay, int] = {}
    for op_rows in grouped(rows, ops.launch):
        graph = int(ops.graph_node_id[op_rows[0]]) >> 32
        in_step = (int(op_step[op_rows[0]]), int(node[op_rows[0]]), graph)
        launched[in_step] = launched.get(in_step, -1) + 1
        replay = (in_step[1], graph, launched[in_step])
        if (partners.confidence[op_rows] == EXACT).all():
            if replay not in certain:
                order = op_rows[np.argsort(ops.graph_node_id[op_rows])]
                certain[replay] = (ops.graph_node_id[order], partners.reference_op[order])
        else:
            doubtful.append((replay, op_rows))
    for replay, op_rows in doubtful:
        if replay in certain:
            nodes, reference_op = certain[replay]
            at = rows_in(nodes, ops.graph_node_id[op_rows])
            partners.reference_op[op_rows] = np.where(at >= 0, reference_op[at], -1)
            partners.confidence[op_rows] = np.where(at >= 0, EXACT, NONE)


def _attribute_nodes(
    timeline: Timeline,
    tree: PathTree,
    node: Int64s,
    replayed: Bools,
    reference: GraphReference,
    partners: Partners,
) -> None:
    """Fill in the partners among the nodes of captured graphs, else those that torch annotated."""
    if reference.graphs:
        launches, matches, _ = match_captured(timeline, tree, node, replayed, reference)
        for launch, match in zip(launches, matches, strict=True):
            if match is not None:
                has_partner = match.partner >= 0
                partners.reference_op[launch.ops[has_partner]] = match.partner[has_partner]
                partners.confidence[launch.ops[has_partner]] = EXACT if match.certain else PARTIAL
    annotated = [(op.node, row) for row, op in enumerate(reference.ops) if op.node is not None]
    node_id = timeline.trace.ops.graph_node_id
    left = np.flatnonzero(replayed & (partners.reference_op < 0) & (node_id > 0))
    if annotated and len(left):
        nodes, rows = np.array(sorted(annotated), dtype=np.int64).T
        at = rows_in(nodes, node_id[left])
        partners.reference_op[left[at >= 0]] = rows[at[at >= 0]]
        partners.confidence[left[at >= 0]] = EXACT


def match_captured(
    timeline: Timeline, tree: PathTree, node: Int64s, replayed: Bools, reference: GraphReference
) -> tuple[list[GraphLaunch], list[GraphMatch | None], CapturedReplays]:
    """The graph launches of a trace, the captured graph that each ran, and what matched them."""
    trace = timeline.trace
    rows = np.flatnonzero(replayed)
    calls, first = np.unique(trace.ops.launch[rows], return_index=True)
    tops = node[rows[first]].tolist()
    batches = {
        top: batch_of([tree.names[ancestor] for ancestor in tree.chain(top)]) for top in set(tops)
    }
    batch = {call: batches[top] for call, top in zip(calls.tolist(), tops, strict=True)}
    launches = graph_launches(trace, rows, timeline.steps.op_step, batch)
    matcher = CapturedReplays(trace, reference)
    matches = matcher.find(launches)
    follow_nodes(trace, launches, matches)
    return launches, matches, matcher


def batch_of(names: Sequence[str]) -> int | None:
    """The tokens of the step that the ranges around a launch name, None if none does; an inner
    range counts before an outer one."""
    for name in reversed(names):
        if match := _TOKENS.search(name) or _BATCH.search(name):
            return int(match[1])
        if both := _TWO_TOKENS.search(name):
            return int(both[1]) + int(both[2])
    return None


def parts_below(tree: PathTree, top: int, parts: Sequence[str]) -> Sequence[str]:
    """The parts of a node's path that the ranges around its launch do not have already: modules
    around the capture may be open around the launch too."""
    around = [tree.names[ancestor] for ancestor in tree.chain(top)]
    own = [_INSTANCE.sub("", part) for part in parts[:-1]]
    for shared in range(min(len(around), len(own)), 0, -1):
        if around[-shared:] == own[:shared]:
            return parts[shared:]
    return parts
