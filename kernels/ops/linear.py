"""out = W n + bias, n = x or RMSNorm(x): a plain product, where nothing is fused behind it.

Bytes moved: W once, x and the norm's weight once, out once.
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
from decodescope.kernels.ops.batched.linear import linear as batched_linear
from decodescope.kernels.ops.rms_norm import normed_reference


def linear_reference(
    x: torch.Tensor, weight: WeightMatrix, norm: Norm | None = None
) -> torch.Tensor:
    """n W^T + bias in float64, n = RMSNorm(x), or x where `norm` is None. x [batch, columns]."""
    product = normed_reference(x, norm) @ weight.dense().T
    return product if weight.bias is None else product + weight.bias.double()


@triton.jit
def _linear_kernel(
    x_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    eps,
    N,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    NORM: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    PDL: tl.constexpr,
):
    lane = tl.arange(0, ROWS)
    first = tl.program_id(0) * ROWS
    w_ptr += first.to(tl.int64) * K
    # Rows past the end repeat the last one instead of being masked: loads stay wide and plain.
    inside = tl.minimum(lane, N - 1 - first)
    sums, square_sum = products(w_ptr, inside, x_ptr, g_ptr, 0, K, BLOCK, 1, AHEAD, NORM, PDL)
    if NORM:
        sums *= tl.rsqrt(square_sum / K + eps)
    rows = first + lane
    mask = rows < N
    sums = finished(sums, scale_ptr, bias_ptr, rows, mask, SCALED, BIASED)
    tl.store(out_ptr + rows, sums.to(out_ptr.dtype.element_ty), mask=mask)


def linear(
    x: torch.Tensor,
    weight: WeightMatrix,
    out: torch.Tensor,
    tile: Tile,
    norm: Norm | None = None,
    pdl: bool = False,
) -> Launch:
    """out[b, n] = sum over k of W[n, k] n[b, k] + bias[n], n = RMSNorm(x), or x without a norm.

    x [batch, columns], out [batch, rows], contiguous, of one dtype; batch 1..16. Sums are float32
    and rounded once; the norm's factor is applied to the sum.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out in x's memory; a tile of more than
            one split.
    """
    batch = check_activations(x, weight.columns, weight.data.device)
    check_tensor("out", out, (batch, weight.rows), x.dtype, x.device)
    check_norm(norm, weight.columns, x.device)
    check_apart("out", out, x)
    check_unsplit(tile)
    if batch > 1:
        return batched_linear(x, weight, out, tile, norm, pdl)
    return launch(
        _linear_kernel,
        (triton.cdiv(weight.rows, tile.rows),),
        x,
        None if norm is None else norm.weight,
        weight.data,
        weight.scale,
        weight.bias,
        out,
        0.0 if norm is None else norm.eps,
        weight.rows,
        K=weight.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        AHEAD=blocks_ahead(weight.columns, tile),
        NORM=norm is not None,
        SCALED=weight.scale is not None,
        BIASED=weight.bias is not None,
        PDL=pdl,
        num_warps=tile.num_warps,
        **launch_options(pdl),
    )
