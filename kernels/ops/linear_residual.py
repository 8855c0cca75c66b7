"""residual += W x + bias: the output projection of attention and the down projection of the MLP.

Bytes moved: W once, x once, the residual read and written: the launch it replaces besides the
product would read and write the residual again.

For long inner dimensions `tile.splits` programs share a row; see `workspace` for how they add up.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.overlap import launch_options
from decodescope.kernels.device.vector_product import blocks_ahead, products
from decodescope.kernels.host.checks import check_activations, check_apart, check_tensor
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix, finished
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.batched import linear_residual as batched


def linear_residual_reference(
    x: torch.Tensor, weight: WeightMatrix, residual: torch.Tensor
) -> torch.Tensor:
    """residual + x W^T + bias in float64. x [batch, columns], residual [batch, rows]."""
    product = x.double() @ weight.dense().T
    if weight.bias is not None:
        product += weight.bias.double()
    return residual.double() + product


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
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    SPLITS: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    PDL: tl.constexpr,
):
    block = tl.program_id(0)
    split = tl.program_id(1)
    lane = tl.arange(0, ROWS)
    first = block * ROWS
    w_ptr += first.to(tl.int64) * K
    # Rows past the end repeat the last one instead of being masked: loads stay wide and plain.
    inside = tl.minimum(lane, N - 1 - first)
    sums, _ = products(w_ptr, inside, x_ptr, x_ptr, split, K, BLOCK, SPLITS, AHEAD, False, PDL)
    rows = first + lane
    mask = rows < N
    if SPLITS > 1:
        padded = tl.num_programs(0) * ROWS
        tl.store(partial_ptr + split * padded + rows, sums)
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + block, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            total = tl.zeros((ROWS,), dtype=tl.float32)
            for part in tl.static_range(SPLITS):
                total += tl.load(partial_ptr + part * padded + rows)
            total = finished(total, scale_ptr, bias_ptr, rows, mask, SCALED, BIASED)
            total += tl.load(residual_ptr + rows, mask=mask, other=0.0).to(tl.float32)
            tl.store(residual_ptr + rows, total.to(residual_ptr.dtype.element_ty), mask=mask)
            tl.store(counter_ptr + block, 0)
    else:
        total = finished(sums, scale_ptr, bias_ptr, rows, mask, SCALED, BIASED)
        total += tl.load(residual_ptr + rows, mask=mask, other=0.0).to(tl.float32)
        tl.store(residual_ptr + rows, total.to(residual_ptr.dtype.element_ty), mask=mask)


def linear_residual(
    x: torch.Tensor,
    weight: WeightMatrix,
    residual: torch.Tensor,
    tile: Tile,
    workspace: Workspace,
    pdl: bool = False,
) -> Launch:
    """residual[b, n] += sum over k of W[n, k] x[b, k] + bias[n], in place, rounded once.

    x [batch, columns], residual [batch, rows], both contiguous and of one dtype; batch 1..16. The
    workspace holds `splits` * rows (rounded up to the tile) * batch floats when splits > 1.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a residual in x's memory; a workspace
            that is too small.
    """
    batch = check_activations(x, weight.columns, weight.data.device)
    check_tensor("residual", residual, (batch, weight.rows), x.dtype, x.device)
    check_apart("residual", residual, x)
    if batch > 1:
        return batched.linear_residual(x, weight, residual, tile, workspace, pdl)
    blocks = triton.cdiv(weight.rows, tile.rows)
    shared_blocks = blocks if tile.splits > 1 else 0
    workspace.check(tile.splits * shared_blocks * tile.rows, shared_blocks, x.device)
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
        K=weight.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        AHEAD=blocks_ahead(weight.columns, tile),
        SPLITS=tile.splits,
        SCALED=weight.scale is not None,
        BIASED=weight.bias is not None,
        PDL=pdl,
        num_warps=tile.num_warps,
        **launch_options(pdl),
    )
