"""residual += X W^T + bias for several tokens; see `decodescope.kernels.ops.linear_residual`.

Bytes moved: W and bias once, x once, the residual read and written; with splits also
2 * splits * rows * batch floats of partial sums.
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
from decodescope.kernels.host.weights import WeightMatrix, finished
from decodescope.kernels.host.workspace import Workspace


@triton.jit
def _sum_of_splits(
    sums,
    partial_ptr,
    counter_ptr,
    block,
    split,
    rows,
    BATCH: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """(all splits' sums added in their order, True) for the last to arrive; else (own sums, False).

    The counter is zero again afterwards. partials [SPLITS, padded rows, BATCH].
    """
    token = tl.arange(0, TOKENS)
    padded = tl.num_programs(0) * sums.shape[0]
    offsets = rows[:, None] * BATCH + token[None, :]
    present = (token < BATCH)[None, :]
    tl.store(partial_ptr + split * padded * BATCH + offsets, sums, mask=present)
    # The count of one thread stands for the stores of all.
    tl.debug_barrier()
    is_last = tl.atomic_add(counter_ptr + block, 1, sem="acq_rel") == SPLITS - 1
    if is_last:
        sums = tl.zeros_like(sums)
        for part in tl.static_range(SPLITS):
            offset = part * padded * BATCH
            sums += tl.load(partial_ptr + offset + offsets, mask=present, other=0.0)
        tl.store(counter_ptr + block, 0)
    return sums, is_last


@triton.jit
def _linear_residual_kernel(
    x_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    residual_ptr,
    partial_ptr,
    counter_ptr,
    N,
    BATCH: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WIDENED: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    block = tl.program_id(0)
    split = tl.program_id(1)
    lane = tl.arange(0, ROWS)
    first = block * ROWS
    w_ptr += first.to(tl.int64) * K
    # Rows past the end repeat the last one instead of being masked: loads stay wide and plain.
    inside = tl.minimum(lane, N - 1 - first)
    prefetch_rows(w_ptr, inside, split, K, BLOCK, SPLITS, PDL)
    wait_for_previous(PDL)
    rows = first + lane
    token = tl.arange(0, TOKENS)
    mask = (rows < N)[:, None] & (token < BATCH)[None, :]
    places = residual_ptr + token[None, :] * N + rows[:, None]
    # Asked for before the loop, so that the end of the kernel does not wait for it. Only the last
    # program of a block writes here, after all of them have arrived.
    residual = tl.load(places, mask=mask, other=0.0).to(tl.float32)
    sums = products(
        w_ptr, inside, x_ptr, x_ptr, split, 0.0, BATCH, K, BLOCK, SPLITS, False, WIDENED
    )
    finishes = True
    if SPLITS > 1:
        sums, finishes = _sum_of_splits(
            sums, partial_ptr, counter_ptr, block, split, rows, BATCH, SPLITS
        )
    if finishes:
        sums = finished(
            sums, scale_ptr, bias_ptr, rows[:, None], (rows < N)[:, None], SCALED, BIASED
        )
        tl.store(places, (residual + sums).to(residual_ptr.dtype.element_ty), mask=mask)


def linear_residual(
    x: torch.Tensor,
    weight: WeightMatrix,
    residual: torch.Tensor,
    tile: Tile,
    workspace: Workspace,
    pdl: bool = False,
) -> Launch:
    """residual[b, n] += sum over k of W[n, k] x[b, k] + bias[n], in place, rounded once.

    Arguments as `linear_residual` has checked them. With splits
    the workspace holds splits * rows (rounded up to the tile) * batch floats and a counter for each
    block of rows.

    Raises:
        ValueError: a tile below 16 x 16, or a workspace that is too small.
    """
    check_tile(tile)
    blocks = triton.cdiv(weight.rows, tile.rows)
    if tile.splits > 1:
        workspace.check(tile.splits * blocks * tile.rows * x.shape[0], blocks, x.device)
    return launch(
        _linear_residual_kernel,
        (blocks, tile.splits),
        x,
        weight.data,
        weight.scale,
        weight.bias,
        residual,
        workspace.partials,
        workspace.counters,
        weight.rows,
        BATCH=x.shape[0],
        K=weight.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        SPLITS=tile.splits,
        SCALED=weight.scale is not None,
        BIASED=weight.bias is not None,
        WIDENED=widened(x),
        PDL=pdl,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **launch_options(pdl),
    )
