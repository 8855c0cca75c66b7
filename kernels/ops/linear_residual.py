"""residual += W x + bias: the output projection of attention and the down projection of the MLP.

Where a norm comes before the addition, the sum of products replaces what `residual` holds.

Bytes moved: W and bias once, x once, the residual read and written. A separate addition would read
and write the residual again. With splits, a batch also writes and reads
`split_workspace` floats of partial sums. Over the links, the sums to each other rank of an
`exchange`.

For long inner dimensions `tile.splits` programs share a row; `host/workspace.py` describes how
their sums are added.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product, vector_product
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.pushed_sums import message_slots, message_turn, push_sums
from decodescope.kernels.device.weight_rows import (
    group_scale_places,
    program_rows,
    scale_and_bias,
    split_sums,
)
from decodescope.kernels.host.checks import check_apart, check_floats, check_residual
from decodescope.kernels.host.exchange import Exchange, sending
from decodescope.kernels.host.operation import Launch, ResidualOperation, Tensors, launch
from decodescope.kernels.host.product import Product, product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import Workspace, split_sizes
from decodescope.kernels.ops.linear import linear_reference


def linear_residual_reference(
    x: torch.Tensor, weight: WeightMatrix, residual: torch.Tensor
) -> torch.Tensor:
    """residual + x W^T + bias in float64. x [batch, columns], residual [batch, rows]."""
    return residual.double() + linear_reference(x, weight)


@triton.jit
def _linear_residual_kernel(
    x_ptr,
    x_scale_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    residual_ptr,
    partial_ptr,
    counter_ptr,
    peers_ptr,
    turns_ptr,
    N: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    SPLITS: tl.constexpr,
    ADDS: tl.constexpr,
    MESSAGE: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    block = tl.program_id(0)
    split = tl.program_id(1)
    w_ptr, inside, rows = program_rows(w_ptr, block, N, LAYOUT[0], ROWS)
    mask = rows < N
    first = vector_product.first_blocks(w_ptr, inside, None, split, K, BLOCK, SPLITS, AHEAD, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, mask)
    slots = message_slots(peers_ptr, MESSAGE)
    wait_for_previous(PDL)
    turn = message_turn(turns_ptr, MESSAGE)
    # Loaded before the sums, so that the end of the kernel does not wait for it. Only the last
    # program of a block writes here, after all of them have arrived.
    if ADDS:
        residual = tl.load(residual_ptr + rows, mask=mask, other=0.0).to(tl.float32)
    sums = vector_product.vector_products(
        first, w_ptr, inside, x_ptr, x_scale_ptr, None, 0.0, split, K, BLOCK, SPLITS, AHEAD, LAYOUT
    )
    column, finishes = split_sums(sums[:, None], partial_ptr, counter_ptr, block, split, SPLITS)
    sums = tl.reshape(column, (ROWS,))
    if finishes:
        total = sums * scale + bias
        if ADDS:
            total += residual
        if MESSAGE is not None:
            push_sums(total[:, None], block * ROWS, 0, slots, turn, MESSAGE)
        tl.store(residual_ptr + rows, total.to(residual_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _linear_residual_batched_kernel(
    x_ptr,
    x_scale_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    residual_ptr,
    partial_ptr,
    counter_ptr,
    peers_ptr,
    turns_ptr,
    N: tl.constexpr,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    ADDS: tl.constexpr,
    MESSAGE: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    block = tl.program_id(0)
    split = tl.program_id(1)
    w_ptr, inside, rows = program_rows(w_ptr, block, N, LAYOUT[0], ROWS)
    batched_product.prefetch_rows(w_ptr, inside, split, K, BLOCK, SPLITS, PDL, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], (rows < N)[:, None])
    group_scales = group_scale_places(group_scale_ptr, rows, LAYOUT)
    slots = message_slots(peers_ptr, MESSAGE)
    wait_for_previous(PDL)
    turn = message_turn(turns_ptr, MESSAGE)
    token = tl.arange(0, TOKENS)
    mask = (rows < N)[:, None] & (token < BATCH)[None, :]
    places = residual_ptr + token[None, :] * N + rows[:, None]
    # Loaded before the loop, so that the end of the kernel does not wait for it. Only the last
    # program of a block writes here, after all of them have arrived.
    if ADDS:
        residual = tl.load(places, mask=mask, other=0.0)
    sums = batched_product.batched_products(
        w_ptr,
        inside,
        x_ptr,
        x_scale_ptr,
        split,
        BATCH,
        TOKENS,
        K,
        BLOCK,
        SPLITS,
        WORDS,
        LAYOUT,
        group_scales,
        num_stages,
    )
    sums, finishes = split_sums(sums, partial_ptr, counter_ptr, block, split, SPLITS)
    if finishes:
        sums = sums * scale + bias
        if ADDS:
            sums += residual.to(tl.float32)
        if MESSAGE is not None:
            push_sums(sums, block * ROWS, 0, slots, turn, MESSAGE)
        tl.store(places, sums.to(residual_ptr.dtype.element_ty), mask=mask)


def split_workspace(weight: WeightMatrix, tile: Tile, batch: int) -> tuple[int, int]:
    """Floats and counters of workspace that a launch with this tile needs (`split_sizes`)."""
    return split_sizes(triton.cdiv(weight.rows, tile.rows), tile, batch)


@dataclass(frozen=True, slots=True)
class LinearResidual(ResidualOperation, Product):
    """residual[b, n] += sum over k of W[n, k] x[b, k] + bias[n], in place, rounded once. Unless it
    `adds`, what was there is neither read nor kept.

    x [batch, columns], residual [batch, rows], contiguous, of dtypes that `check_residual` allows,
    or any dtype of the kernels where nothing is added; batch 1..64; or x E4M3 with `x_scale` and
    FP8 weights (`Product`). With more than one split the workspace holds as much as
    `split_workspace` says. With an `exchange` the residual is float32, and what is written is sent
    to the other ranks as well, for an `AllReduceResidual` that is `pushed`.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a residual in x's memory; a workspace
            that is too small; for a batch a tile below 16 x 16.
    """

    x: torch.Tensor
    weight: WeightMatrix
    residual: torch.Tensor
    tile: Tile
    workspace: Workspace
    x_scale: torch.Tensor | None = None
    adds: bool = True
    exchange: Exchange | None = None

    def launch(self, pdl: bool = False) -> Launch:
        x, weight, residual, tile = self.x, self.weight, self.residual, self.tile
        batch = self.checked_batch(weight)
        if self.adds:
            check_residual(residual, (batch, weight.rows), x)
        else:
            check_floats("residual", residual, (batch, weight.rows), x.device)
        check_apart("residual", residual, x)
        options = product_options(x, weight, tile, pdl)
        blocks = triton.cdiv(weight.rows, tile.rows)
        self.workspace.check(*split_workspace(weight, tile, batch), x.device)
        operands, message = sending(self.exchange, residual, tile.num_warps)
        return launch(
            _linear_residual_kernel if batch == 1 else _linear_residual_batched_kernel,
            (blocks, tile.splits),
            x,
            self.x_scale,
            *weight.operands(batch),
            residual,
            self.workspace.partials,
            self.workspace.counters,
            *operands,
            N=weight.rows,
            SPLITS=tile.splits,
            ADDS=self.adds,
            MESSAGE=message,
            **options,
        )

    def reference(self, position: int) -> Tensors:
        return (linear_residual_reference(self.values, self.weight, self.start),)
