"""out = silu(G n) * (U n), n = RMSNorm(x): the first half of the MLP in one launch.

Bytes moved: G and U once, x and the norm's weight once, out once. What it replaces writes and reads
n, both products and silu's result as well.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.overlap import launch_options
from decodescope.kernels.device.vector_product import blocks_ahead, products
from decodescope.kernels.host.checks import (
    check_activations,
    check_apart,
    check_norm,
    check_tensor,
    check_unsplit,
)
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, finished
from decodescope.kernels.ops.batched import norm_gate_up as batched
from decodescope.kernels.ops.rms_norm import normed_reference


def norm_gate_up_reference(
    x: torch.Tensor, norm: Norm | None, gate_up: WeightMatrix
) -> torch.Tensor:
    """silu(G n) * (U n) in float64. x [batch, hidden], gate_up [2 * intermediate, hidden]."""
    product = normed_reference(x, norm) @ gate_up.dense().T
    if gate_up.bias is not None:
        product += gate_up.bias.double()
    gate, up = product.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


@triton.jit
def _norm_gate_up_kernel(
    x_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    eps,
    I,  # noqa: E741 - the field's name for the intermediate size
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    NORM: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    PDL: tl.constexpr,
):
    # Rows of the tile alternate between G and U, so that one product serves both.
    lane = tl.arange(0, ROWS)
    first = tl.program_id(0) * (ROWS // 2)
    unit = tl.minimum(first + lane // 2, I - 1)
    rows = unit + (lane % 2) * I
    sums, square_sum = products(
        w_ptr, rows.to(tl.int64), x_ptr, g_ptr, 0, K, BLOCK, 1, AHEAD, NORM, PDL
    )
    if NORM:
        sums *= tl.rsqrt(square_sum / K + eps)
    sums = finished(sums, scale_ptr, bias_ptr, rows, lane < ROWS, SCALED, BIASED)
    gate, up = tl.split(tl.reshape(sums, (ROWS // 2, 2)))
    units = first + tl.arange(0, ROWS // 2)
    activated = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + units, activated.to(out_ptr.dtype.element_ty), mask=units < I)


def norm_gate_up(
    x: torch.Tensor,
    norm: Norm | None,
    gate_up: WeightMatrix,
    out: torch.Tensor,
    tile: Tile,
    pdl: bool = False,
) -> Launch:
    """out[b, i] = silu(G[i] . n[b]) * (U[i] . n[b]), n = RMSNorm(x), or x where `norm` is None.

    x [batch, hidden], out [batch, intermediate], contiguous, of one dtype; batch 1..16. `gate_up`
    [2 * intermediate, hidden] holds G's rows, then U's. `tile.rows` counts rows of both, so half as
    many outputs.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out in x's memory; a tile of one row
            or of more than one split.
    """
    batch = _check(x, norm, gate_up, out, tile)
    if batch > 1:
        return batched.norm_gate_up(x, norm, gate_up, out, tile, pdl)
    intermediate = gate_up.rows // 2
    return launch(
        _norm_gate_up_kernel,
        (triton.cdiv(intermediate, tile.rows // 2),),
        x,
        None if norm is None else norm.weight,
        gate_up.data,
        gate_up.scale,
        gate_up.bias,
        out,
        0.0 if norm is None else norm.eps,
        intermediate,
        K=gate_up.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        AHEAD=blocks_ahead(gate_up.columns, tile),
        NORM=norm is not None,
        SCALED=gate_up.scale is not None,
        BIASED=gate_up.bias is not None,
        PDL=pdl,
        num_warps=tile.num_warps,
        **launch_options(pdl),
    )


def _check(
    x: torch.Tensor, norm: Norm | None, gate_up: WeightMatrix, out: torch.Tensor, tile: Tile
) -> int:
    """The batch, if all is as `norm_gate_up` demands."""
    if gate_up.rows % 2:
        raise ValueError(f"gate_up of {gate_up.rows} rows: must hold as many gate as up rows")
    batch = check_activations(x, gate_up.columns, gate_up.data.device)
    check_tensor("out", out, (batch, gate_up.rows // 2), x.dtype, x.device)
    check_apart("out", out, x)
    check_norm(norm, gate_up.columns, x.device)
    check_unsplit(tile)
    if tile.rows < 2:
        raise ValueError("a tile of one row holds no pair of gate and up")
    return batch
