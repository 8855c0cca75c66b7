"""What decodescope adds to the trace of a window it captured, and the keys it is stored under.

The reference attributes the ops of graph replays: it is the same step, run once without its graph.
"""

from msgspec import Struct

from decodescope.analyzer.schema.report import Int64

CAPTURE_KEY = "decodescope"
REFERENCE_KEY = "decodescope_reference"


class ReferenceOp(Struct, frozen=True, array_like=True):
    """One GPU op of the ungraphed step: its stream, name and range path from the step marker down
    (`decode_step/model/layer.0/mlp`; "" outside it), and the bytes it must move and the FLOPs it
    must do, if known."""

    stream: Int64
    name: str
    path: str
    bytes: Int64 | None = None
    flops: Int64 | None = None


class GraphReference(Struct, frozen=True):
    """All GPU ops of one ungraphed step in order of their start; stored under `REFERENCE_KEY`,
    next to the capture's own description under `CAPTURE_KEY`."""

    ops: tuple[ReferenceOp, ...]
