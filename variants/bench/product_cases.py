"""The kernels of a fused step that read weights or the KV cache: where its time goes."""

from collections.abc import Iterator

import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.decode_attention import decode_attention, decode_attention_reference
from decodescope.kernels.ops.linear_residual import linear_residual, linear_residual_reference
from decodescope.kernels.ops.norm_gate_up import norm_gate_up, norm_gate_up_reference
from decodescope.kernels.ops.norm_head import norm_head, norm_head_reference
from decodescope.kernels.ops.norm_qkv_rope import norm_qkv_rope, norm_qkv_rope_reference
from decodescope.variants.bench.operands import Copy, KernelCase, Operands, relative_error

# These kernels touch one row of a cache, whatever its length: a short one will do.
SHORT_CAPACITY = 4
LAST_ROW = SHORT_CAPACITY - 1
TOKEN_BYTES = 8


def product_cases(operands: Operands) -> Iterator[KernelCase]:
    """One case for each operation of a layer, and the head, in the step's order."""
    layer, tiles = operands.parts.layers[0], operands.tiles
    yield _qkv_case(operands)
    yield _attention_case(operands)
    yield _residual_case(operands, "o", layer.o, tiles.o)
    yield _gate_up_case(operands)
    yield _residual_case(operands, "down", layer.down, tiles.down)
    yield _head_case(operands)


def _qkv_case(operands: Operands) -> KernelCase:
    parts, batch, layer = operands.parts, operands.batch, operands.parts.layers[0]
    tile, heads, kv_heads = operands.tiles.qkv, parts.heads, parts.kv_heads

    def copy() -> Copy:
        x, norm = operands.normal(batch, parts.hidden), operands.norm(layer.input_norm)
        qkv, qk_norm = operands.matrix(layer.qkv), operands.qk_norm(layer.qk_norm)
        rope, position = operands.rope(SHORT_CAPACITY), operands.position(LAST_ROW)
        q = operands.empty(batch, heads, parts.head_dim)
        k, v = operands.kv_rows(SHORT_CAPACITY), operands.kv_rows(SHORT_CAPACITY)

        def launch(pdl: bool) -> None:
            norm_qkv_rope(
                x, norm, qkv, rope, position, q, k, v, tile, operands.workspace, qk_norm, pdl
            )

        def error(pdl: bool) -> float:
            written = (q, k[:, :, LAST_ROW], v[:, :, LAST_ROW])
            for out in written:
                out.fill_(float("nan"))
            launch(pdl)
            expected = norm_qkv_rope_reference(
                x, norm, qkv, rope, LAST_ROW, heads, kv_heads, qk_norm
            )
            return relative_error(torch.cat(written, dim=1), torch.cat(expected, dim=1))

        return Copy(launch, error)

    moved = _elements_bytes(operands, (batch + 1) * parts.hidden + batch * layer.qkv.rows)
    return KernelCase(
        operation="qkv",
        kernel="norm_qkv_rope",
        shape=_product_shape(layer.qkv),
        launches_per_step=len(parts.layers),
        bytes_moved=layer.qkv.bytes_read + moved,
        tile=tile,
        copies=lambda count: [copy() for _ in range(count)],
    )


def _attention_case(operands: Operands) -> KernelCase:
    parts, batch, context = operands.parts, operands.batch, operands.context
    tile, window = operands.tiles.attention, parts.layers[0].window
    visible = context + 1 if window is None else min(context + 1, window)

    def copy() -> Copy:
        q = operands.normal(batch, parts.heads, parts.head_dim)
        out = operands.empty(batch, parts.heads, parts.head_dim)
        k, v = operands.kv_rows(context + 1), operands.kv_rows(context + 1)
        position = operands.position(context)

        def launch(pdl: bool) -> None:
            decode_attention(
                q, k, v, position, parts.scale, out, tile, operands.workspace, window, pdl
            )

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            launch(pdl)
            expected = decode_attention_reference(q, k, v, context, parts.scale, window)
            return relative_error(out, expected)

        return Copy(launch, error)

    kv_elements = 2 * batch * parts.kv_heads * visible * parts.head_dim
    q_elements = batch * parts.heads * parts.head_dim
    return KernelCase(
        operation="attention",
        kernel="decode_attention",
        shape=f"{parts.heads}/{parts.kv_heads} heads x {visible} x {parts.head_dim}",
        launches_per_step=len(parts.layers),
        bytes_moved=_elements_bytes(operands, kv_elements + 2 * q_elements),
        tile=tile,
        copies=lambda count: [copy() for _ in range(count)],
    )


def _residual_case(
    operands: Operands, operation: str, like: WeightMatrix, tile: Tile
) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copy() -> Copy:
        x, weight = operands.normal(batch, like.columns), operands.matrix(like)
        residual = operands.normal(batch, like.rows)

        def launch(pdl: bool) -> None:
            linear_residual(x, weight, residual, tile, operands.workspace, pdl)

        def error(pdl: bool) -> float:
            expected = linear_residual_reference(x, weight, residual)
            launch(pdl)
            return relative_error(residual, expected)

        return Copy(launch, error)

    moved = _elements_bytes(operands, batch * (like.columns + 2 * like.rows))
    return KernelCase(
        operation=operation,
        kernel="linear_residual",
        shape=_product_shape(like),
        launches_per_step=len(parts.layers),
        bytes_moved=like.bytes_read + moved,
        tile=tile,
        copies=lambda count: [copy() for _ in range(count)],
    )


def _gate_up_case(operands: Operands) -> KernelCase:
    parts, batch, layer = operands.parts, operands.batch, operands.parts.layers[0]
    tile = operands.tiles.gate_up

    def copy() -> Copy:
        x, norm = operands.normal(batch, parts.hidden), operands.norm(layer.post_attention_norm)
        gate_up = operands.matrix(layer.gate_up)
        out = operands.empty(batch, parts.intermediate)

        def launch(pdl: bool) -> None:
            norm_gate_up(x, norm, gate_up, out, tile, pdl)

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            launch(pdl)
            return relative_error(out, norm_gate_up_reference(x, norm, gate_up))

        return Copy(launch, error)

    moved = _elements_bytes(operands, (batch + 1) * parts.hidden + batch * parts.intermediate)
    return KernelCase(
        operation="gate_up",
        kernel="norm_gate_up",
        shape=_product_shape(layer.gate_up),
        launches_per_step=len(parts.layers),
        bytes_moved=layer.gate_up.bytes_read + moved,
        tile=tile,
        copies=lambda count: [copy() for _ in range(count)],
    )


def _head_case(operands: Operands) -> KernelCase:
    parts, batch, tile = operands.parts, operands.batch, operands.tiles.head

    def copy() -> Copy:
        x, norm = operands.normal(batch, parts.hidden), operands.norm(parts.final_norm)
        head = operands.matrix(parts.head)
        tokens, position = operands.tokens(2), operands.position(0)

        def launch(pdl: bool, logits: torch.Tensor | None = None) -> None:
            norm_head(x, norm, head, tokens, position, tile, operands.workspace, logits, pdl=pdl)

        def chosen(pdl: bool, logits: torch.Tensor | None = None) -> torch.Tensor:
            position.zero_()
            tokens[:, 1] = -1
            launch(pdl, logits)
            return tokens[:, 1].clone()

        def error(pdl: bool) -> float:
            logits = torch.full((batch, parts.vocab), float("nan"), device=operands.device)
            with_logits, without = chosen(pdl, logits), chosen(pdl)
            best = logits.argmax(dim=-1)
            if not (torch.equal(with_logits, best) and torch.equal(without, best)):
                return float("inf")
            return relative_error(logits, norm_head_reference(x, norm, head))

        return Copy(launch, error)

    return KernelCase(
        operation="head",
        kernel="norm_head",
        shape=_product_shape(parts.head),
        launches_per_step=1,
        bytes_moved=parts.head.bytes_read
        + _elements_bytes(operands, (batch + 1) * parts.hidden)
        + TOKEN_BYTES * batch,
        tile=tile,
        copies=lambda count: [copy() for _ in range(count)],
    )


def _elements_bytes(operands: Operands, elements: int) -> int:
    return elements * operands.dtype.itemsize


def _product_shape(weight: WeightMatrix) -> str:
    return f"{weight.rows} x {weight.columns}"
