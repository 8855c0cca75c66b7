"""What a graph replay is attributed by: the same step's ops, run once without its CUDA graph."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from decodescope.analyzer.schema.report import Finding

REFERENCE_KEY = "decodescope_reference"


class ReferenceOp(Struct, frozen=True, array_like=True):
    """One GPU op of the ungraphed step: its stream, name and range path from the step marker down
    (`decode_step/model/layer.0/mlp`; "" outside it), and the bytes it must move and the FLOPs it
    must do, where they are known."""

    stream: int
    name: str
    path: str
    bytes: int | None = None
    flops: int | None = None


class GraphReference(Struct, frozen=True):
    """All GPU ops of one ungraphed step in order of their start; travels inside the trace file
    under `REFERENCE_KEY`, beside the capture's own description."""

    ops: tuple[ReferenceOp, ...]


def reference_of(metadata: Mapping[str, object], findings: list[Finding]) -> GraphReference | None:
    """The reference that a trace file carries, None if it has none or an unreadable one.

    `metadata` holds the file's keys beside its events; what is unreadable adds to `findings`.
    """
    if REFERENCE_KEY not in metadata:
        return None
    try:
        return msgspec.convert(metadata[REFERENCE_KEY], GraphReference)
    except msgspec.ValidationError as error:
        findings.append(
            Finding(
                "bad_reference",
                f"the reference of the graph replays is unreadable and ignored ({error})",
            )
        )
        return None
