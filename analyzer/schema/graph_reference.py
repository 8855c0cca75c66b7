"""The additions of decodescope to the trace of a window that it captured, under keys of their own.

The reference attributes the ops of graph replays. It is the same step, run once without its graph;
or the profile of the graph's capture; or the annotations that torch wrote for the graph's nodes.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from decodescope.analyzer.schema.report import Int64

CAPTURE_KEY = "decodescope"
REFERENCE_KEY = "decodescope_reference"

Count = Annotated[int, Meta(ge=0, le=2**62)]
ReplaySource = Literal["step", "capture", "annotations"]


class ReferenceOp(Struct, frozen=True, array_like=True):
    """One GPU op of the ungraphed step: its stream, name and range path from the step marker down
    (`decode_step/model/layer.0/mlp`; "" outside it), and the bytes it must move and the FLOPs it
    must do, if known.

    Of a captured graph: one node; the path begins below the capture. `name` is "" if the profile
    does not name the kernel. Of annotations: one node, whose number is `node`.
    """

    stream: Int64
    name: str
    path: str
    bytes: Int64 | None = None
    flops: Int64 | None = None
    operator: str | None = None
    node: Int64 | None = None


class CapturedGraph(Struct, frozen=True):
    """The nodes of one captured graph: `ops` of `GraphReference.ops` from `first` on, in the order
    of the launch calls.

    Graphs of one `group` were captured for one step, one after another (the pieces of a model).
    `label` is the annotation around the capture, `batch` its batch size, if known. `cut`: the
    profile ends before the capture does, so the last nodes are missing.
    """

    first: Count
    ops: Count
    group: Int64
    file: str
    label: str = ""
    batch: Int64 | None = None
    cut: bool = False


class GraphReference(Struct, frozen=True):
    """All GPU ops of one ungraphed step in order of their start; stored under `REFERENCE_KEY`,
    next to the capture's own description under `CAPTURE_KEY`.

    With `graphs`, the ops are the nodes of captured graphs instead. Ops with a `node` come from
    annotations; they may follow those of captured graphs.
    """

    ops: tuple[ReferenceOp, ...]
    graphs: tuple[CapturedGraph, ...] = ()

    @property
    def of_step(self) -> bool:
        """Whether the ops are those of an ungraphed step."""
        return not self.graphs and not any(op.node is not None for op in self.ops[-1:])
