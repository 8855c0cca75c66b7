"""Builds the reference that attributes graph replays, from an ungraphed step."""

from collections.abc import Mapping

import numpy as np

from decodescope.analyzer.attribution.range_tree import path_part
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.roofline.roofline import UNKNOWN, op_work
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp


def reference_from(
    analysis: Analysis, step: int = 0, deeper: Mapping[int, str] | None = None
) -> GraphReference:
    """The ops of one step of an ungraphed window, in order of their start.

    Paths begin at the step's marker; an op launched while no range of the step was open has the
    path "". `deeper` gives ops of `analysis.trace` (by index) a more precise full path from the
    step's marker down. Bytes and FLOPs are those of the operators, if known.

    Raises:
        IndexError: the window has no step of that number.
    """
    trace, ranges, steps = analysis.trace, analysis.ranges, analysis.steps
    marker = path_part(analysis.step_name(step))
    op_rows = np.flatnonzero(steps.op_step == step % len(steps))
    paths = {
        node: _path_from(analysis, node, marker)
        for node in np.unique(ranges.op_node[op_rows]).tolist()
    }
    work = op_work(trace, ranges.reference_op)
    rows = zip(
        *(op_rows.tolist(), trace.ops.stream[op_rows].tolist(), trace.ops.name[op_rows].tolist()),
        *(
            ranges.op_node[op_rows].tolist(),
            work.bytes[op_rows].tolist(),
            work.flops[op_rows].tolist(),
        ),
        strict=True,
    )
    better = deeper or {}
    return GraphReference(
        tuple(
            ReferenceOp(
                stream=stream,
                name=trace.names[name],
                path=better.get(op, paths[node]),
                bytes=None if moved == UNKNOWN else moved,
                flops=None if computed == UNKNOWN else computed,
            )
            for op, stream, name, node, moved, computed in rows
        )
    )


def _path_from(analysis: Analysis, node: int, marker: str | None) -> str:
    """The ranges (no operators) from the step's marker down to a node of the tree."""
    tree = analysis.ranges.tree
    names = [tree.names[ancestor] for ancestor in tree.chain(node) if not tree.operator[ancestor]]
    return "/".join(names[names.index(marker) :]) if marker in names else ""
