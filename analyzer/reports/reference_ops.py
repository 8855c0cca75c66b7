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

    Paths begin at the step's marker, "" while no range of the step was open; `deeper` gives ops of
    `analysis.trace` (by index) a more precise one.

    Raises:
        IndexError: the window has no step of that number.
    """
    trace, ranges, steps = analysis.trace, analysis.ranges, analysis.steps
    marker, tree = path_part(analysis.step_name(step)), ranges.tree
    op_rows = np.flatnonzero(steps.op_step == step % len(steps))
    paths = {}
    for node in np.unique(ranges.op_node[op_rows]).tolist():
        names = [tree.names[above] for above in tree.chain(node) if not tree.operator[above]]
        paths[node] = "/".join(names[names.index(marker) :]) if marker in names else ""
    work = op_work(trace, ranges.reference_op)
    better = deeper or {}
    ops = []
    for op in op_rows.tolist():
        moved, computed = int(work.bytes[op]), int(work.flops[op])
        ops.append(
            ReferenceOp(
                stream=int(trace.ops.stream[op]),
                name=trace.names[trace.ops.name[op]],
                path=better.get(op, paths[int(ranges.op_node[op])]),
                bytes=None if moved == UNKNOWN else moved,
                flops=None if computed == UNKNOWN else computed,
            )
        )
    return GraphReference(tuple(ops))
