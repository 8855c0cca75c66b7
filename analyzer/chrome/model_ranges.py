"""The model's ranges above the ops of a stream: those of graph replays, which the host never
opened, and the layers and roles that were inferred from the names of kernels.

A slice covers consecutive ops of one path on one stream, from the first start to the last end. An
op that starts before the previous one ended cuts the ranges of that one short, so that slices
always nest; a range that is cut to nothing has no slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.attribution.replays import CONFIDENCES, EXACT
from decodescope.analyzer.chrome.events import rows_of
from decodescope.analyzer.names.kinds import ROLES
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.structure.step_structure import BY_NAME, KNOWN_BY, NO_LAYER, UNKNOWN_ROLE
from decodescope.analyzer.trace import Bools, Int64s

_NO_GROUP = -1


@dataclass(slots=True)
class RangeSlice:
    """One range around ops; `confidence` is the worst of its ops' (see `Ranges`), or EXACT for the
    ranges around the launch itself; `known_by` is how the roles of its ops are known at worst (see
    `Structure`)."""

    node: int
    start_ns: int
    end_ns: int
    confidence: int
    known_by: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive ops of one group and one path; `outside` counts the ranges around the launch. A
    group is a graph launch that was attributed, or what a step launched beside those."""

    group: int
    chain: tuple[int, ...]
    outside: int
    start_ns: int
    end_ns: int
    confidence: int
    known_by: int


def range_slices(analysis: Analysis, ops: Int64s) -> list[RangeSlice]:
    """The slices above those of `ops` (one stream's, by start) that attributed graph launches
    queued, or whose steps have inferred ranges; outer slices precede the inner ones."""
    slices: list[RangeSlice] = []
    open_slices: list[RangeSlice] = []
    group = None
    for run in _runs(analysis, ops):
        kept = 0
        if run.group == group:
            pairs = zip(open_slices, run.chain, strict=False)
            kept = sum(1 for _ in takewhile(lambda pair: pair[0].node == pair[1], pairs))
        group = run.group
        for ended in open_slices[kept:]:
            ended.end_ns = min(ended.end_ns, run.start_ns)
        del open_slices[kept:]
        for node in run.chain[kept:]:
            open_slices.append(RangeSlice(node, run.start_ns, run.start_ns, EXACT, BY_NAME))
            slices.append(open_slices[-1])
        for depth, around in enumerate(open_slices):
            around.end_ns = max(around.end_ns, run.end_ns)
            if depth >= run.outside:
                around.confidence = max(around.confidence, run.confidence)
                around.known_by = max(around.known_by, run.known_by)
    return [range_slice for range_slice in slices if range_slice.end_ns > range_slice.start_ns]


def slice_args(analysis: Analysis, range_slice: RangeSlice) -> dict[str, object]:
    """The arguments of a slice; an inferred one also has its source and its role."""
    tree = analysis.ranges.tree
    args: dict[str, object] = {
        "path": analysis.ranges.paths[range_slice.node],
        "confidence": CONFIDENCES[range_slice.confidence],
    }
    if tree.inferred[range_slice.node]:
        name = tree.names[range_slice.node]
        args["inferred from"] = "kernel names"
        if name in ROLES:
            args |= {"role": name, "role known by": KNOWN_BY[range_slice.known_by]}
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


def _runs(analysis: Analysis, ops: Int64s) -> Iterator[_Run]:
    trace, ranges = analysis.trace, analysis.ranges
    inferred = np.append(ranges.tree.inferred, False).astype(np.bool_)
    group, attributed = _groups(analysis, ops, inferred[ranges.op_node[ops]])
    chosen = group != _NO_GROUP
    ops, group, attributed = ops[chosen], group[chosen], attributed[chosen]
    if not len(ops):
        return
    own, by_name = ranges.op_node[ops], inferred[ranges.op_node[ops]]
    known = (ranges.reference_op[ops] >= 0) | by_name
    launched_at = np.append(ranges.call_node, NO_NODE)[analysis.launches.rows_of_ops(trace)[ops]]
    around = np.where(attributed, launched_at, _tops(ranges.tree)[own])
    node = np.where(known, own, around)
    changes = (np.diff(group) != 0) | (np.diff(node) != 0)
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    columns = (
        *(group[first], node[first], launched_at[first], trace.ops.start_ns[ops[first]]),
        np.maximum.reduceat(trace.ops.end_ns[ops], first),
        np.maximum.reduceat(np.where(known, ranges.confidence[ops], EXACT), first),
        np.maximum.reduceat(np.where(by_name, analysis.structure.confidence[ops], BY_NAME), first),
    )
    chains = {
        path_node: tuple(ranges.tree.chain(path_node)) for path_node in np.unique(node).tolist()
    }
    for of, path, launched, start, end, worst, role in rows_of(columns):
        chain = chains[path]
        outside = sum(not inferred[node_in_chain] for node_in_chain in chain)
        if chain and not inferred[chain[-1]]:
            outside = len(ranges.tree.chain(launched))
        yield _Run(of, chain, outside, start, end, worst, role)


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
