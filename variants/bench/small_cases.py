"""The kernels that read neither weights nor the KV cache's older rows: their time is a launch's."""

from collections.abc import Callable, Iterator, Sequence

import torch

from decodescope.kernels.ops.embedding import embed, embed_reference
from decodescope.kernels.ops.kv_write import kv_write, kv_write_reference
from decodescope.kernels.ops.rms_norm import rms_norm, rms_norm_reference
from decodescope.kernels.ops.rms_norm_residual import rms_norm_residual, rms_norm_residual_reference
from decodescope.kernels.ops.rope import rotate, rotated_reference
from decodescope.kernels.ops.swiglu import swiglu, swiglu_reference
from decodescope.variants.bench.operands import Copy, KernelCase, Operands, relative_error
from decodescope.variants.bench.product_cases import LAST_ROW, SHORT_CAPACITY, TOKEN_BYTES


def small_cases(operands: Operands) -> Iterator[KernelCase]:
    """The embedding, and what a step launches where a fusion is switched off."""
    yield _embedding_case(operands)
    yield _norm_case(operands)
    yield _residual_norm_case(operands)
    yield _rope_case(operands)
    yield _kv_write_case(operands)
    yield _swiglu_case(operands)


def _embedding_case(operands: Operands) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copies(count: int) -> Sequence[Copy]:
        table = operands.normal(*parts.embedding.shape)
        return [copy(table) for _ in range(count)]

    def copy(table: torch.Tensor) -> Copy:
        tokens, position = operands.tokens(SHORT_CAPACITY), operands.position(LAST_ROW)
        out = operands.empty(batch, parts.hidden)

        def launch(pdl: bool) -> None:
            embed(table, tokens, position, out, pdl)

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            launch(pdl)
            return relative_error(out, embed_reference(table, tokens, LAST_ROW))

        return Copy(launch, error)

    moved = 2 * batch * parts.hidden * operands.dtype.itemsize + TOKEN_BYTES * batch
    shape = f"{batch} of {parts.embedding.shape[0]} x {parts.hidden}"
    return KernelCase("embedding", "embed", shape, 1, moved, None, copies)


def _norm_case(operands: Operands) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copy() -> Copy:
        x, norm = operands.normal(batch, parts.hidden), operands.norm(parts.final_norm)
        out = operands.empty(batch, parts.hidden)

        def launch(pdl: bool) -> None:
            rms_norm(x, norm, out, pdl)

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            launch(pdl)
            return relative_error(out, rms_norm_reference(x, norm))

        return Copy(launch, error)

    elements = (2 * batch + 1) * parts.hidden
    return _small_case(operands, "norm", "rms_norm", (batch, parts.hidden), elements, copy)


def _residual_norm_case(operands: Operands) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copy() -> Copy:
        x, residual = operands.normal(batch, parts.hidden), operands.normal(batch, parts.hidden)
        norm, out = operands.norm(parts.final_norm), operands.empty(batch, parts.hidden)

        def launch(pdl: bool) -> None:
            rms_norm_residual(x, residual, norm, out, pdl)

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            total, _ = rms_norm_residual_reference(x, residual, norm)
            launch(pdl)
            # Sum and norm apart: rounding that a kernel does otherwise shows in the sum alone.
            expected = rms_norm_reference(residual, norm)
            return max(relative_error(residual, total), relative_error(out, expected))

        return Copy(launch, error)

    elements = (4 * batch + 1) * parts.hidden
    shape = (batch, parts.hidden)
    return _small_case(operands, "residual+norm", "rms_norm_residual", shape, elements, copy)


def _rope_case(operands: Operands) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copy() -> Copy:
        q = operands.normal(batch, parts.heads, parts.head_dim)
        k = operands.normal(batch, parts.kv_heads, parts.head_dim)
        table, position = operands.rope(SHORT_CAPACITY), operands.position(LAST_ROW)

        def launch(pdl: bool) -> None:
            rotate(q, k, table, position, pdl=pdl)

        def error(pdl: bool) -> float:
            expected = [rotated_reference(x, table, LAST_ROW) for x in (q, k)]
            launch(pdl)
            return relative_error(torch.cat((q, k), dim=1), torch.cat(expected, dim=1))

        return Copy(launch, error)

    shape = (batch, parts.heads + parts.kv_heads, parts.head_dim)
    row_bytes = 4 * parts.head_dim
    elements = 2 * shape[0] * shape[1] * shape[2]
    return _small_case(operands, "rope", "rotate", shape, elements, copy, row_bytes)


def _kv_write_case(operands: Operands) -> KernelCase:
    parts, batch = operands.parts, operands.batch

    def copy() -> Copy:
        k = operands.normal(batch, parts.kv_heads, parts.head_dim)
        v = operands.normal(batch, parts.kv_heads, parts.head_dim)
        k_cache, v_cache = operands.kv_rows(SHORT_CAPACITY), operands.kv_rows(SHORT_CAPACITY)
        position = operands.position(LAST_ROW)

        def launch(pdl: bool) -> None:
            kv_write(k, v, k_cache, v_cache, position, pdl)

        def error(pdl: bool) -> float:
            expected = [
                kv_write_reference(rows, cache, LAST_ROW)
                for rows, cache in ((k, k_cache), (v, v_cache))
            ]
            k_cache[:, :, LAST_ROW] = v_cache[:, :, LAST_ROW] = float("nan")
            launch(pdl)
            return relative_error(torch.cat((k_cache, v_cache)), torch.cat(expected))

        return Copy(launch, error)

    shape = (batch, parts.kv_heads, parts.head_dim)
    elements = 4 * shape[0] * shape[1] * shape[2]
    return _small_case(operands, "kv_write", "kv_write", shape, elements, copy)


def _swiglu_case(operands: Operands) -> KernelCase:
    shape = (operands.batch, operands.parts.intermediate)

    def copy() -> Copy:
        gate, up, out = operands.normal(*shape), operands.normal(*shape), operands.empty(*shape)

        def launch(pdl: bool) -> None:
            swiglu(gate, up, out, pdl)

        def error(pdl: bool) -> float:
            out.fill_(float("nan"))
            launch(pdl)
            return relative_error(out, swiglu_reference(gate, up))

        return Copy(launch, error)

    return _small_case(operands, "swiglu", "swiglu", shape, 3 * shape[0] * shape[1], copy)


def _small_case(
    operands: Operands,
    operation: str,
    kernel: str,
    shape: tuple[int, ...],
    elements: int,
    copy: Callable[[], Copy],
    other_bytes: int = 0,
) -> KernelCase:
    return KernelCase(
        operation=operation,
        kernel=kernel,
        shape=" x ".join(map(str, shape)),
        launches_per_step=0,
        bytes_moved=elements * operands.dtype.itemsize + other_bytes,
        tile=None,
        copies=lambda count: [copy() for _ in range(count)],
    )
