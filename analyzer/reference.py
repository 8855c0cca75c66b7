"""What a graph replay is attributed by: the same step's ops, run once without its CUDA graph."""

from msgspec import Struct

REFERENCE_KEY = "decodescope_reference"


class ReferenceOp(Struct, frozen=True, array_like=True):
    """One GPU op of the ungraphed step: its stream, name and range path from the step marker down
    (`decode_step/model/layer.0/mlp`), and the bytes it must move and the FLOPs it must do, where
    they are known."""

    stream: int
    name: str
    path: str
    bytes: int | None = None
    flops: int | None = None


class GraphReference(Struct, frozen=True):
    """All GPU ops of one ungraphed step in order of their start; travels inside the trace file
    under `REFERENCE_KEY`, beside the capture's own description."""

    ops: tuple[ReferenceOp, ...]
