"""out = RMSNorm(X) W^T + bias for several tokens; see `decodescope.kernels.ops.linear`.

Bytes moved: W and bias once, x and the norm's weight once, out once.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.batched_product import (
    TOKENS,
    check_tile,
    prefetch_rows,
    products,
    widened,
)
from decodescope.kernels.device.overlap import allow_next, launch_options, wait_for_previous
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, finished


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
    BATCH: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WIDENED: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    lane = tl.arange(0, ROWS)
    first = tl.program_id(0) * ROWS
    w_ptr += first.to(tl.int64) * K
    # Rows past the end repeat the last one instead of being masked: loads stay wide and plain.
    inside = tl.minimum(lane, N - 1 - first)
    prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL)
    wait_for_previous(PDL)
    sums = products(w_ptr, inside, x_ptr, g_ptr, 0, eps, BATCH, K, BLOCK, 1, NORM, WIDENED)
    rows = first + lane
    mask = (rows < N)[:, None]
    sums = finished(sums, scale_ptr, bias_ptr, rows[:, None], mask, SCALED, BIASED)
    token = tl.arange(0, TOKENS)
    tl.store(
        out_ptr + token[None, :] * N + rows[:, None],
        sums.to(out_ptr.dtype.element_ty),
        mask=mask & (token < BATCH)[None, :],
    )


def linear(
    x: torch.Tensor,
    weight: WeightMatrix,
    out: torch.Tensor,
    tile: Tile,
    norm: Norm | None = None,
    pdl: bool = False,
) -> Launch:
    """out[b, n] = sum over k of W[n, k] n[b, k] + bias[n], n = RMSNorm(x), or x without `norm`.

    Arguments as `decodescope.kernels.ops.linear.linear` has checked them.

    Raises:
        ValueError: a tile below 16 x 16.
    """
    check_tile(tile)
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
        BATCH=x.shape[0],
        K=weight.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        NORM=norm is not None,
        SCALED=weight.scale is not None,
        BIASED=weight.bias is not None,
        WIDENED=widened(x),
        PDL=pdl,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **launch_options(pdl),
    )
