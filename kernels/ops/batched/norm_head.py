"""Final norm, lm_head and greedy choice for several tokens; see `ops.norm_head`.

Bytes moved: the head's weights once, x and the norm's weight once, one token for each sequence;
the logits only if they are asked for.
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
from decodescope.kernels.device.choice import choice_keys, chosen_index
from decodescope.kernels.device.overlap import allow_next, launch_options, wait_for_previous
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, finished
from decodescope.kernels.host.workspace import NO_KEY, Workspace


@triton.jit
def _choose(
    logits,
    rows,
    mask,
    tokens_ptr,
    position_ptr,
    key_ptr,
    counter_ptr,
    capacity,
    BATCH: tl.constexpr,
    NO_KEY: tl.constexpr,
):
    """Offer the largest of `logits` [R, TOKENS]; the last to arrive writes tokens and position."""
    token = tl.arange(0, TOKENS)
    present = token < BATCH
    keys = tl.where(mask, choice_keys(logits, rows[:, None]), NO_KEY)
    tl.atomic_max(key_ptr + token, tl.max(keys, axis=0), mask=present, sem="relaxed")
    # The count of one thread stands for the offers of all.
    tl.debug_barrier()
    if tl.atomic_add(counter_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        best = tl.load(key_ptr + token, mask=present, other=0, cache_modifier=".cg")
        position = tl.load(position_ptr)
        places = tokens_ptr + token * (capacity + 1) + tl.minimum(position, capacity - 1) + 1
        fits = (position >= 0) & (position < capacity)
        tl.store(places, chosen_index(best), mask=token < tl.where(fits, BATCH, 0))
        # Every thread has read the keys and the position before one of them overwrites them.
        tl.debug_barrier()
        tl.store(key_ptr + token, tl.full((TOKENS,), NO_KEY, tl.int64), mask=present)
        tl.store(position_ptr, position + 1)
        tl.store(counter_ptr, 0)


@triton.jit
def _norm_head_kernel(
    x_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    logits_ptr,
    tokens_ptr,
    position_ptr,
    key_ptr,
    counter_ptr,
    eps,
    V,
    capacity,
    BATCH: tl.constexpr,
    NO_KEY: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    LOGITS: tl.constexpr,
    CHOOSE: tl.constexpr,
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
    inside = tl.minimum(lane, V - 1 - first)
    prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL)
    wait_for_previous(PDL)
    sums = products(w_ptr, inside, x_ptr, g_ptr, 0, eps, BATCH, K, BLOCK, 1, NORM, WIDENED)
    rows = first + lane
    mask = (rows < V)[:, None]
    sums = finished(sums, scale_ptr, bias_ptr, rows[:, None], mask, SCALED, BIASED)
    # transformers chooses among logits of the model's dtype; ties there go to the lowest index.
    sums = sums.to(x_ptr.dtype.element_ty).to(tl.float32)
    if LOGITS:
        token = tl.arange(0, TOKENS)
        places = logits_ptr + token[None, :] * V + rows[:, None]
        tl.store(places, sums, mask=mask & (token < BATCH)[None, :])
    if CHOOSE:
        _choose(
            sums,
            rows,
            mask,
            tokens_ptr,
            position_ptr,
            key_ptr,
            counter_ptr,
            capacity,
            BATCH,
            NO_KEY,
        )


def norm_head(
    x: torch.Tensor,
    norm: Norm | None,
    head: WeightMatrix,
    tokens: torch.Tensor,
    position: torch.Tensor,
    tile: Tile,
    workspace: Workspace,
    logits: torch.Tensor | None = None,
    choose: bool = True,
    pdl: bool = False,
) -> Launch:
    """tokens[b, position + 1] = argmax over v of H[v] . n[b], the lowest v of equal ones; then
    position += 1. n = RMSNorm(x), or x where `norm` is None.

    Arguments as `norm_head` has checked them. Outside the history no
    token is written, and the position still moves on. The keys and one counter of the workspace are
    as new afterwards.

    Raises:
        ValueError: a tile below 16 x 16, or a workspace without a counter.
    """
    check_tile(tile)
    workspace.check(0, 1, x.device)
    return launch(
        _norm_head_kernel,
        (triton.cdiv(head.rows, tile.rows),),
        x,
        None if norm is None else norm.weight,
        head.data,
        head.scale,
        head.bias,
        logits,
        tokens,
        position,
        workspace.keys,
        workspace.counters,
        0.0 if norm is None else norm.eps,
        head.rows,
        tokens.shape[1] - 1,
        BATCH=x.shape[0],
        NO_KEY=NO_KEY,
        K=head.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        NORM=norm is not None,
        LOGITS=logits is not None,
        CHOOSE=choose,
        SCALED=head.scale is not None,
        BIASED=head.bias is not None,
        WIDENED=widened(x),
        PDL=pdl,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **launch_options(pdl),
    )
