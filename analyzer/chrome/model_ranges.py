"""The model's ranges above the ops of a stream: those of graph replays, which the host never
opened, and the layers and roles that were inferred from the names of kernels.

A slice covers consecutive ops of one path on one stream, from the first start to the last end. An
op that starts before the previous one ended cuts the ranges of that one short, so that slices
always nest; a range that is cut to nothing has no slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.attribution.replays import CONFIDENCES, EXACT
from decodescope.analyzer.chrome.events import rows_of
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.structure.step_structure import BY_NAME, KNOWN_BY, NO_LAYER, UNKNOWN_ROLE
from decodescope.analyzer.trace import Bools, Int64s, Intervals

_NO_GROUP = -1


@dataclass(frozen=True, slots=True, eq=False)
class RangeSlices(Intervals):
    """Ranges around ops: the `node` of each; `confidence` is the worst of its ops' (see `Ranges`),
    or EXACT for the ranges around the launch itself; `known_by` is how the roles of its ops are
    known at worst (see `Structure`)."""

    node: Int64s
    confidence: Int64s
    known_by: Int64s


def range_slices(analysis: Analysis, ops: Int64s) -> RangeSlices:
    """The slices above those of `ops` (one stream's, by start) that attributed graph launches
    queued, or whose steps have inferred ranges; outer slices precede the inner ones.

    Consecutive ops of one group and path make a run. A group is a graph launch that was attributed,
    or what a step launched beside those.
    """
    trace, ranges, tree = analysis.trace, analysis.ranges, analysis.ranges.tree
    inferred = np.append(tree.inferred, False).astype(np.bool_)
    group, attributed = _groups(analysis, ops, inferred[ranges.op_node[ops]])
    chosen = group != _NO_GROUP
    ops, group, attributed = ops[chosen], group[chosen], attributed[chosen]
    own, by_name = ranges.op_node[ops], inferred[ranges.op_node[ops]]
    known = (ranges.reference_op[ops] >= 0) | by_name
    launched_at = np.append(ranges.call_node, NO_NODE)[analysis.launches.rows_of_ops(trace)[ops]]
    around = np.where(attributed, launched_at, _tops(tree)[own])
    node = np.where(known, own, around)
    first = _begins(group, node)
    role_known_by = np.where(by_name, analysis.structure.confidence[ops], BY_NAME)
    group, node, start_ns = group[first], node[first], trace.ops.start_ns[ops[first]]
    end_ns = np.maximum.reduceat(trace.ops.end_ns[ops], first)
    confidence = np.maximum.reduceat(np.where(known, ranges.confidence[ops], EXACT), first)
    known_by = np.maximum.reduceat(role_known_by, first)
    nodes, place = np.unique(node, return_inverse=True)
    chains = [tree.chain(path_node) for path_node in nodes.tolist()]
    # How many ranges are around the launch.
    real = np.array([np.count_nonzero(~inferred[chain]) for chain in chains], dtype=np.int64)
    depth = np.append(tree.depths, -1)
    outside = np.where(inferred[node], real[place], depth[launched_at[first]] + 1)
    slices, begin = [], []
    for level in range(max(map(len, chains), default=0)):
        of_chain = [chain[level] if level < len(chain) else NO_NODE for chain in chains]
        at_level = np.array(of_chain)[place]
        first = _begins(group, at_level)
        until_ns = np.append(start_ns[first[1:]], np.iinfo(np.int64).max)
        inside = level >= outside
        level_slices = RangeSlices(
            start_ns=start_ns[first],
            end_ns=np.minimum(np.maximum.reduceat(end_ns, first), until_ns),
            node=at_level[first],
            confidence=np.maximum.reduceat(np.where(inside, confidence, EXACT), first),
            known_by=np.maximum.reduceat(np.where(inside, known_by, BY_NAME), first),
        )
        drawn = (level_slices.node != NO_NODE) & (level_slices.length_ns > 0)
        slices.append(level_slices.take(drawn))
        begin.append(first[drawn])
    order = np.argsort(np.concatenate([np.zeros(0, dtype=np.int64), *begin]), kind="stable")
    return RangeSlices.concatenate(slices).take(order)


def slice_args(analysis: Analysis, node: int, confidence: int, known_by: int) -> dict[str, object]:
    """The arguments of a slice; an inferred one also has its source and its role."""
    tree, name = analysis.ranges.tree, analysis.ranges.tree.names[node]
    args: dict[str, object] = {
        "path": analysis.ranges.paths[node],
        "confidence": CONFIDENCES[confidence],
    }
    if tree.inferred[node]:
        args["inferred from"] = "kernel names"
        if name in ROLES:
            args |= {"role": name, "role known by": KNOWN_BY[known_by]}
    return args


def op_args(analysis: Analysis, ops: Int64s) -> Iterator[dict[str, object]]:
    structure = analysis.structure
    for role, layer, known in rows_of((structure.role, structure.layer, structure.confidence), ops):
        args: dict[str, object] = {}
        if known != UNKNOWN_ROLE:
            args["role"] = ROLES[role]
        if layer != NO_LAYER:
            args["layer"] = layer
        yield args


def _begins(*keys: Int64s) -> Int64s:
    """Where stretches of equal keys begin."""
    begins = np.ones(len(keys[0]), dtype=np.bool_)
    begins[1:] = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return np.flatnonzero(begins)


def _groups(analysis: Analysis, ops: Int64s, inferred: Bools) -> tuple[Int64s, Bools]:
    """The group of each op (`_NO_GROUP`: it is not drawn), and whether that is a graph launch some
    of whose ops have a partner in the reference."""
    launch, reference_op = analysis.trace.ops.launch, analysis.ranges.reference_op
    partnered = np.zeros(len(analysis.trace.calls) + 1, dtype=np.bool_)
    partnered[launch[reference_op >= 0]] = True
    call, step = launch[ops], analysis.steps.op_step[ops]
    attributed = partnered[call]
    owner = np.where(step >= 0, _NO_GROUP - 1 - step, call)
    drawn = attributed | np.isin(owner, owner[inferred])
    return np.where(drawn, np.where(attributed, call, owner), _NO_GROUP), attributed


def _tops(tree: PathTree) -> Int64s:
    top = np.full(len(tree) + 1, NO_NODE, dtype=np.int64)
    for node, parent in enumerate(tree.parents):
        top[node] = node if parent == NO_NODE else top[parent]
    return top
