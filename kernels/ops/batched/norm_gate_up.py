"""out = silu(G n) * (U n), n = RMSNorm(x), for several tokens; see `kernels.norm_gate_up`.

Bytes moved: G and U once, x and the norm's weight once, out once.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.batched_product import (
    TOKENS,
    check_tile,
    prefetch_rows,
    products,
    split_pairs,
    widened,
)
from decodescope.kernels.device.overlap import allow_next, launch_options, wait_for_previous
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, finished


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
    # Rows of the tile alternate between G and U, so that one product serves both.
    lane = tl.arange(0, ROWS)
    first = tl.program_id(0) * (ROWS // 2)
    rows = tl.minimum(first + lane // 2, I - 1) + (lane % 2) * I
    prefetch_rows(w_ptr, rows.to(tl.int64), 0, K, BLOCK, 1, PDL)
    wait_for_previous(PDL)
    sums = products(
        w_ptr, rows.to(tl.int64), x_ptr, g_ptr, 0, eps, BATCH, K, BLOCK, 1, NORM, WIDENED
    )
    sums = finished(
        sums, scale_ptr, bias_ptr, rows[:, None], (lane < ROWS)[:, None], SCALED, BIASED
    )
    gate, up = split_pairs(sums)
    units = first + tl.arange(0, ROWS // 2)
    token = tl.arange(0, TOKENS)
    tl.store(
        out_ptr + token[None, :] * I + units[:, None],
        (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty),
        mask=(units < I)[:, None] & (token < BATCH)[None, :],
    )


def norm_gate_up(
    x: torch.Tensor,
    norm: Norm | None,
    gate_up: WeightMatrix,
    out: torch.Tensor,
    tile: Tile,
    pdl: bool = False,
) -> Launch:
    """out[b, i] = silu(G[i] . n[b]) * (U[i] . n[b]), n = RMSNorm(x), or x where `norm` is None.

    Arguments as `decodescope.kernels.ops.norm_gate_up.norm_gate_up` has checked them. `tile.rows`
    counts rows of G and U together.

    Raises:
        ValueError: a tile below 16 x 16.
    """
    check_tile(tile)
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
        BATCH=x.shape[0],
        K=gate_up.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        NORM=norm is not None,
        SCALED=gate_up.scale is not None,
        BIASED=gate_up.bias is not None,
        WIDENED=widened(x),
        PDL=pdl,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **launch_options(pdl),
    )
