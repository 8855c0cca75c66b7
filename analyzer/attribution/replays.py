"""The partner of each op of a CUDA graph replay: an op of an ungraphed step, or a graph node.

A replay has no host ranges. The same step, run once without its graph, has them
(`GraphReference`), and it runs the same ops in the same order on each stream. So the ops of a step
are aligned by name with the reference's ops below the range that launched the graph. Ops launched
directly between graphs take part as landmarks and keep their own path. Where the reference holds
captured graphs or annotations, the nodes of the graph are the partners.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.attribution.alignment import OpSequence, align_step
from decodescope.analyzer.attribution.captured_replays import (
    CapturedReplays,
    GraphLaunch,
    GraphMatch,
)
from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.step_report import Confidence
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Trace, grouped, row_numbers, rows_in

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

    def add(self, op_rows: Int64s, reference_op: Int64s, certain: bool) -> None:
        """Give some ops their partners; those with -1 stay as they are."""
        paired = reference_op >= 0
        self.reference_op[op_rows[paired]] = reference_op[paired]
        self.confidence[op_rows[paired]] = EXACT if certain else PARTIAL


@dataclass(frozen=True, slots=True, eq=False)
class GraphReplays:
    """The ops that graph launches put on a device, and the `reference` that attributes them:
    `replayed` marks them among all ops. `node` is the range of `tree` around each op's launch."""

    timeline: Timeline
    tree: PathTree
    node: Int64s
    replayed: Bools
    reference: GraphReference

    def names_around(self, node: int) -> list[str]:
        """The names of a range and of those around it, outermost first."""
        return [self.tree.names[ancestor] for ancestor in self.tree.chain(node)]


def find_partners(replays: GraphReplays) -> Partners:
    """Find the partner of every replayed op; without a reference, none has one."""
    count = len(replays.node)
    partners = Partners(np.full(count, -1, dtype=np.int64), np.full(count, NONE, dtype=np.int8))
    if replays.reference.ops and replays.replayed.any():
        attribute = _attribute_replays if replays.reference.of_step else _attribute_nodes
        attribute(replays, partners)
    return partners


def _attribute_replays(replays: GraphReplays, partners: Partners) -> None:
    op_step = replays.timeline.steps.op_step
    names, sequence = _common_names(replays.timeline.trace, replays.reference)
    in_step = np.where(op_step >= 0, replays.node, NO_NODE)
    for top in np.unique(in_step[replays.replayed & (in_step != NO_NODE)]).tolist():
        below = _reference_below(replays, top)
        if len(below):
            inside = (in_step != NO_NODE) & replays.tree.within([top])[in_step]
            own = replays.replayed & (in_step == top)
            aligned = _aligned(replays.timeline, names, inside, own, sequence.take(below))
            for op_rows, partner, certain in aligned:
                partners.add(op_rows, np.append(below, -1)[partner], certain)
    _follow_graph_nodes(replays, partners)


def reference_path(replays: GraphReplays, node: int) -> str | None:
    """The node's path from the reference's step marker down; None outside such a marker."""
    marker = next((op.path.split("/")[0] for op in replays.reference.ops if op.path), None)
    names = replays.names_around(node)
    return "/".join(names[names.index(marker) :]) if marker in names else None


def _reference_below(replays: GraphReplays, top: int) -> Int64s:
    prefix = reference_path(replays, top)
    if prefix is None:
        return np.zeros(0, dtype=np.int64)
    inside = [f"{op.path}/".startswith(f"{prefix}/") for op in replays.reference.ops]
    return np.flatnonzero(inside)


def _aligned(
    timeline: Timeline, names: Int64s, inside: Bools, replayed: Bools, sequence: OpSequence
) -> Iterator[tuple[Int64s, Int64s, bool]]:
    """The `replayed` ops of each step, aligned with some of the reference's ops (`sequence`): the
    ops of a step that are `inside` the range, the partner of each in the sequence (-1: none), and
    whether the partners are certain. `names` are the numbers of all ops' names."""
    ops = timeline.trace.ops
    by_nodes = bool((ops.graph_node_id[replayed] >= 0).all())
    known: dict[tuple[bytes, ...], tuple[Int64s, bool]] = {}
    for op_rows in grouped(np.flatnonzero(inside), timeline.steps.op_step):
        own = replayed[op_rows]
        if not own.any():
            continue
        stream = row_numbers(ops.device[op_rows], ops.stream[op_rows])
        step = OpSequence(names[op_rows], stream)
        order = None
        if by_nodes:
            order = np.lexsort((ops.graph_node_id[op_rows], ops.launch[op_rows]))
        shape = (step.name, step.stream, own, *(() if order is None else (order,)))
        key = tuple(column.tobytes() for column in shape)
        if key not in known:
            known[key] = align_step(step, own, order, sequence)
        yield op_rows, *known[key]


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


def _follow_graph_nodes(replays: GraphReplays, partners: Partners) -> None:
    """Give an op the partner of its graph node in a replay whose alignment is certain.

    This attributes replays with missing ops. Both replays must be the same launch of the same graph
    within their steps and below the same range (`node`); the node then decides every op of such a
    replay. CUPTI numbers a node `graph id << 32 | number within the graph`.
    """
    ops, op_step = replays.timeline.trace.ops, replays.timeline.steps.op_step
    rows = np.flatnonzero(replays.replayed & (ops.graph_node_id >= 0) & (op_step >= 0))
    certain: dict[_Replay, tuple[Int64s, Int64s]] = {}
    doubtful: list[tuple[_Replay, Int64s]] = []
    launched: dict[_Replay, int] = {}
    for op_rows in grouped(rows, ops.launch):
        graph = int(ops.graph_node_id[op_rows[0]]) >> 32
        in_step = (int(op_step[op_rows[0]]), int(replays.node[op_rows[0]]), graph)
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


def _attribute_nodes(replays: GraphReplays, partners: Partners) -> None:
    """Fill in the partners among the nodes of captured graphs, else those that torch annotated."""
    reference = replays.reference
    if reference.graphs:
        launches, matches, _ = match_captured(replays)
        for launch, match in zip(launches, matches, strict=True):
            if match is not None:
                partners.add(launch.ops, match.partner, match.certain)
    annotated = [(op.node, row) for row, op in enumerate(reference.ops) if op.node is not None]
    node_id = replays.timeline.trace.ops.graph_node_id
    left = np.flatnonzero(replays.replayed & (partners.reference_op < 0) & (node_id > 0))
    if annotated and len(left):
        nodes, rows = np.array(sorted(annotated), dtype=np.int64).T
        partners.add(left, np.append(rows, -1)[rows_in(nodes, node_id[left])], certain=True)


def match_captured(
    replays: GraphReplays,
) -> tuple[list[GraphLaunch], list[GraphMatch | None], CapturedReplays]:
    """The graph launches of a trace in the order of their calls, the captured graph that each ran,
    and what matched them."""
    trace, op_step = replays.timeline.trace, replays.timeline.steps.op_step
    ops, calls = trace.ops, trace.calls
    batches: dict[int, int | None] = {}
    launches = []
    for op_rows in grouped(np.flatnonzero(replays.replayed), ops.launch):
        call, top = int(ops.launch[op_rows[0]]), int(replays.node[op_rows[0]])
        if top not in batches:
            batches[top] = batch_of(replays.names_around(top))
        turn = (int(calls.pid[call]), int(calls.tid[call]), int(op_step[op_rows[0]]))
        if (ops.graph_node_id[op_rows] >= 0).all():
            op_rows = op_rows[np.argsort(ops.graph_node_id[op_rows], kind="stable")]
        launches.append(GraphLaunch(op_rows, turn, batches[top]))
    matcher = CapturedReplays(trace, replays.reference)
    return launches, matcher.find(launches), matcher


def batch_of(names: Sequence[str]) -> int | None:
    """The tokens of the step that the ranges around a launch name, None if none does; an inner
    range counts before an outer one."""
    for name in reversed(names):
        if match := _TOKENS.search(name) or _BATCH.search(name):
            return int(match[1])
        if both := _TWO_TOKENS.search(name):
            return int(both[1]) + int(both[2])
    return None


def parts_below(around: Sequence[str], parts: Sequence[str]) -> Sequence[str]:
    """The parts of a node's path that the ranges `around` its launch do not have already: modules
    around the capture may be open around the launch too."""
    own = [_INSTANCE.sub("", part) for part in parts[:-1]]
    for shared in range(min(len(around), len(own)), 0, -1):
        if around[-shared:] == own[:shared]:
            return parts[shared:]
    return parts
