"""What `kernels` measures: the operations of a fused step, and of one without its fusions."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import torch

from benchmarks.harness.errors import relative_error
from benchmarks.kernels.operands import Operands, operation_error
from benchmarks.kernels.report import KernelUse
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.kernels.ops.embedding import Embed
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.kernels.ops.rope import RopeTable, Rotate
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import FUSIONS, Part, VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.plan import step_plan
from decodescope.variants.steps.fused.tiling.shapes import TiledOperation, step_shapes

# All kernels but attention touch one row of a cache, whatever its length: a short one is enough.
SHORT_CONTEXT = 3

# What has another name than its kernel.
_NAMES: dict[type[KernelOperation], str] = {
    RmsNorm: "norm",
    RmsNormResidual: "residual+norm",
    Rotate: "rope",
}

# Those with tiles, as a step launches them.
_IN_STEP: tuple[TiledOperation, ...] = (
    "qkv",
    "attention",
    "o",
    "gate_up",
    "down",
    "shared_gate_up",
    "router",
    "experts_gate_up",
    "experts_down",
    "shared_down",
    "head",
)


@dataclass(frozen=True, slots=True)
class Copy:
    """One set of operands, in its own memory.

    `launch(pdl)` launches the kernel on it once. `relative_error(pdl)` launches it once on outputs
    filled with NaN and compares them with the reference.
    """

    launch: Callable[[bool], object]
    relative_error: Callable[[bool], float]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel to measure; `copies(n)` makes n sets of operands."""

    use: KernelUse
    copies: Callable[[int], Sequence[Copy]]


def kernel_cases(operands: Operands) -> Iterator[KernelCase]:
    """The operations of a layer and the head in the step's order, then the embedding, and what only
    a step without its fusions launches."""
    spec = operands.spec
    embedding, *others = _operations(operands, spec, SHORT_CONTEXT)
    _, *in_context = _operations(operands, spec, operands.context)
    sizes = step_shapes(_one_layer(operands.parts), operands.batch, operands.context, spec)
    names: list[str] = [name for name in _IN_STEP if name in sizes.operations]
    for short, long in zip(others, in_context, strict=True):
        operation = long if isinstance(long, DecodeAttention) else short
        launches = 1 if names[0] == "head" else len(operands.parts.layers)
        name = names.pop(0) if "tile" in operation.arguments else f"{operation.kernel} {names[0]}"
        yield _case(operands, name, operation, launches)
    yield _case(operands, "embedding", embedding, 1)
    for operation in _unfused(operands, {type(one) for one in (embedding, *others)}):
        yield _case(operands, _NAMES.get(type(operation), operation.kernel), operation, 0)


def _unfused(
    operands: Operands, fused: Collection[type[KernelOperation]]
) -> Iterator[KernelOperation]:
    """One operation of each kernel that is not `fused`, and is launched if all fusions or one are
    left out. Plain products are none: they have the tiles of the fused ones."""
    spec, found = operands.spec, set(fused)
    # Only our own attention reads narrow K and V.
    parts = [part for part in FUSIONS if part != "attention" or spec.kv_format is None]
    for left_out in (parts, *([part] for part in parts)):
        without = replace(spec, without=frozenset[Part](left_out))
        for operation in _operations(operands, without, SHORT_CONTEXT):
            if type(operation) not in found and "tile" not in operation.arguments:
                found.add(type(operation))
                yield operation


def _operations(operands: Operands, spec: VariantSpec, context: int) -> list[KernelOperation]:
    """Our kernels' operations in a step of one layer after `context` tokens, on meta tensors."""
    parts, batch = operands.parts, operands.batch
    angles = torch.empty(context + 1, parts.layers[0].head_dim // 2, device="meta")
    one_layer = _one_layer(parts)
    workload = DecodeWorkload(batch, context, 1)
    plan = step_plan(spec, one_layer, {"": RopeTable(angles, angles)}, workload, operands.tiles)
    operations = (placed.operation for placed in step_operations(plan))
    return [one for one in operations if isinstance(one, KernelOperation)]


def _one_layer(parts: FusedModel) -> FusedModel:
    return replace(parts, layers=parts.layers[:1])


def _case(
    operands: Operands, name: str, operation: KernelOperation, launches_per_step: int
) -> KernelCase:
    attends = isinstance(operation, DecodeAttention)
    position = operands.context if attends else SHORT_CONTEXT

    def copies(count: int) -> list[Copy]:
        # A launch reads a few rows of the embedding table; a table for each copy would not fit.
        kept: dict[str, Any] = {}
        if isinstance(operation, Embed):
            kept = {"table": operands.matrix(operation.table)}
        drawn = [operands.like(operation, position, kept) for _ in range(count)]
        return [Copy(one.launch, partial(_error, one, position)) for one in drawn]

    use = KernelUse(
        operation=name,
        kernel=operation.kernel,
        shape=_shape(operation, position),
        launches_per_step=launches_per_step,
        bytes_moved=operation.bytes_moved(position),
        tile=operation.arguments.get("tile"),
    )
    return KernelCase(use, copies)


def _shape(operation: KernelOperation, position: int) -> str:
    match operation:
        case DecodeAttention(q=q, k_cache=k_cache):
            heads = f"{q.shape[1]}/{k_cache.shape[1]} heads"
            return f"{heads} x {operation.visible(position)} x {q.shape[2]}"
        case Embed(table=table, out=out):
            return f"{len(out)} of {table.rows} x {table.columns}"
        case Rotate(q=q, k=k):
            return f"{len(q)} x {q.shape[1] + k.shape[1]} x {q.shape[2]}"
    values = operation.arguments.values()
    matrices = [(one.rows, one.columns) for one in values if isinstance(one, WeightMatrix)]
    written = (*operation.outputs(position), *operation.updated)
    shapes = chain(matrices, (out.shape for out in written))
    return " x ".join(map(str, next(shapes)))


def _error(operation: KernelOperation, position: int, pdl: bool) -> float:
    if isinstance(operation, NormHead):
        return _head_error(operation, position, pdl)
    return operation_error(operation, position, pdl)


def _head_error(operation: NormHead, position: int, pdl: bool) -> float:
    """The error of the logits; infinite unless their largest is chosen, with and without them."""
    shape = len(operation.x), operation.head.rows
    logits = torch.full(shape, float("nan"), device=operation.x.device)

    def chosen(kept: torch.Tensor | None) -> torch.Tensor:
        operation.position.fill_(position)
        operation.tokens[:, position + 1] = -1
        replace(operation, logits=kept).launch(pdl)
        return operation.tokens[:, position + 1].clone()

    with_logits, without = chosen(logits), chosen(None)
    best = logits.argmax(dim=-1)
    if not (torch.equal(with_logits, best) and torch.equal(without, best)):
        return float("inf")
    return relative_error(logits, *operation.reference(position))
