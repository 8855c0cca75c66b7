"""Timelines of steps from lists of intervals."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.timing.timeline import StepTimeline
from decodescope.analyzer.trace import KERNEL, GpuOps


def step_timeline_of(
    length_ns: int,
    ops: Sequence[tuple[int, int]],
    gaps: Sequence[tuple[int, int]] = (),
    trace_names: tuple[str, ...] = ("k",),
    **columns: Sequence[int],
) -> StepTimeline:
    """`ops` and `gaps` are (start, end) in ns. `columns` are other columns of the ops, and
    `gap_kind`; by default, all ops are kernels of the first name on stream 7."""
    count = len(ops)
    gap_kind = columns.pop("gap_kind", [0] * len(gaps))
    given = {"name": [0] * count, "stream": [7] * count, "kind": [KERNEL] * count, **columns}
    none = dict.fromkeys(
        ("device", "correlation", "external_id", "graph_id", "graph_node_id", "launch", "shape"),
        [-1] * count,
    )
    op_columns = {key: np.array(values, dtype=np.int64) for key, values in (none | given).items()}
    return StepTimeline(
        index=0, name="decode_step", device=0, length_ns=length_ns,
        ops=GpuOps(*_edges(ops), **op_columns),
        gaps=GapParts(*_edges(gaps), gap=np.arange(len(gaps)),
                      kind=np.array(gap_kind, dtype=np.int8)),
        names=trace_names,
    )  # fmt: skip


def _edges(intervals: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(intervals, dtype=np.int64).reshape(-1, 2).T
