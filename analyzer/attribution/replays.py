"""Which op of an ungraphed step each op of a CUDA graph's replay corresponds to.

A replay shows no host ranges. The same step, run once without its graph, does (`GraphReference`),
and it puts the same ops on the device in the same order on each stream. So the ops of a step are
aligned by name with the reference's ops below the range that launched the graph. Ops launched
directly between graphs take part as landmarks; their own path stays as it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.attribution.step_alignment import OpSequence, align_step
from decodescope.analyzer.reference import GraphReference
from decodescope.analyzer.trace import Int8s, Int64s, Trace

EXACT, PARTIAL, NONE = range(3)
# The profiler names the kind of memory of a copy or fill differently in a replay.
_COPY_OR_FILL = re.compile(r"(?i)(memcpy|memset)\b")


@dataclass(frozen=True, slots=True, eq=False)
class Replays:
    """What alignment found for each op of the trace: `reference_op` indexes the reference's ops
    (-1: none), `confidence` is EXACT, PARTIAL or NONE."""

    reference_op: Int64s
    confidence: Int8s


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """One number for each name, the same in the trace and in the reference."""

    of_op: Int64s
    of_reference: Int64s


def attribute_replays(
    trace: Trace, node: Int64s, replayed: NDArray[np.bool_], op_step: Int64s, tree: PathTree
) -> Replays:
    """Find the partner in the reference of every op that a graph launch put on a device.

    `node` is the range around each op's launch, `op_step` its step; `replayed` says which ops are
    graph launches'. Without a reference nothing is found.
    """
    count = len(trace.ops)
    found = Replays(np.full(count, -1, dtype=np.int64), np.full(count, NONE, dtype=np.int8))
    reference = trace.reference
    if reference is None:
        return found
    names = _common_names(trace, reference)
    node = np.where(op_step >= 0, node, NO_NODE)
    for top in np.unique(node[replayed & (node != NO_NODE)]).tolist():
        below = _reference_below(reference, tree, top)
        if len(below):
            inside = np.flatnonzero((node != NO_NODE) & tree.within(top)[node])
            own = replayed & (node == top)
            _attribute(trace, reference, names, below, inside, own, op_step, found)
    return found


def reference_path(reference: GraphReference, tree: PathTree, node: int) -> str | None:
    """The node's path from the reference's step marker down; None outside such a marker."""
    marker = next((op.path.split("/")[0] for op in reference.ops if op.path), None)
    names = [tree.names[one] for one in tree.chain(node)]
    return "/".join(names[names.index(marker) :]) if marker in names else None


def _reference_below(reference: GraphReference, tree: PathTree, top: int) -> Int64s:
    """The reference's ops at or below the range `top`."""
    prefix = reference_path(reference, tree, top)
    if prefix is None:
        return np.zeros(0, dtype=np.int64)
    inside = [op.path == prefix or op.path.startswith(prefix + "/") for op in reference.ops]
    return np.flatnonzero(inside)


def _attribute(
    trace: Trace,
    reference: GraphReference,
    names: _Names,
    below: Int64s,
    inside: Int64s,
    replayed: NDArray[np.bool_],
    op_step: Int64s,
    found: Replays,
) -> None:
    """Align each step's ops of `inside` with the reference's ops `below`."""
    ops = trace.ops
    streams = np.array([op.stream for op in reference.ops], dtype=np.int64)
    wanted = OpSequence(names.of_reference[below], streams[below])
    by_nodes = bool((ops.graph_node_id[replayed] >= 0).all())
    known: dict[tuple[bytes, ...], tuple[Int64s, bool]] = {}
    for mine in _by_step(inside, op_step):
        own = replayed[mine]
        if not own.any():
            continue
        step = OpSequence(names.of_op[mine], _device_streams(ops.device[mine], ops.stream[mine]))
        order = None
        if by_nodes:
            order = np.lexsort((ops.graph_node_id[mine], ops.launch[mine]))
        shape = (step.name, step.stream, own, *(() if order is None else (order,)))
        key = tuple(column.tobytes() for column in shape)
        if key not in known:
            known[key] = align_step(step, own, order, wanted)
        partner, certain = known[key]
        paired = partner >= 0
        found.reference_op[mine[paired]] = below[partner[paired]]
        found.confidence[mine[paired]] = EXACT if certain else PARTIAL


def _common_names(trace: Trace, reference: GraphReference) -> _Names:
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        kind = _COPY_OR_FILL.match(name)
        return numbers.setdefault(kind[1].lower() if kind else name, len(numbers))

    table = np.array([number(name) for name in trace.names], dtype=np.int64)
    return _Names(
        table[trace.ops.name],
        np.array([number(op.name) for op in reference.ops], dtype=np.int64),
    )


def _device_streams(device: Int64s, stream: Int64s) -> Int64s:
    """A number for each stream of each device."""
    _, devices = np.unique(device, return_inverse=True)
    numbers, streams = np.unique(stream, return_inverse=True)
    return np.asarray(devices * len(numbers) + streams, dtype=np.int64)


def _by_step(ops: Int64s, op_step: Int64s) -> Iterator[Int64s]:
    """The ops of each step, still in order of start."""
    order = ops[np.argsort(op_step[ops], kind="stable")]
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(op_step[order])) + 1)
