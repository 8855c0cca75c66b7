"""The partners of replayed ops among the ops or graph nodes of `Trace.reference`."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.schema.structure_report import Confidence
from decodescope.analyzer.trace import Int8s, Int64s

EXACT, PARTIAL, NONE = range(3)
CONFIDENCES: tuple[Confidence, ...] = ("exact", "partial", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """The result for each op of the trace: `reference_op` indexes the reference's ops (-1: none),
    `confidence` is EXACT, PARTIAL or NONE."""

    reference_op: Int64s
    confidence: Int8s


def no_partners(ops: int) -> Partners:
    """`ops` ops without a partner; the columns are filled in later."""
    return Partners(np.full(ops, -1, dtype=np.int64), np.full(ops, NONE, dtype=np.int8))
