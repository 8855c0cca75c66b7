"""Norm, Q/K/V projections, RoPE and the KV write for several tokens; see `kernels.norm_qkv_rope`.

Bytes moved: the projections' weights once, x and the norm's weight once, q, the new K and V rows
once; with QK-norm also 8 * batch bytes for each row of Q and K, through the workspace.
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
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix, finished
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.rope import RopeTable


@triton.jit
def _head_rows(
    q_ptr,
    k_ptr,
    v_ptr,
    head,
    position,
    capacity,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
):
    """Where each token's row of this head goes [TOKENS]: q, or the position's row of a cache."""
    # 64-bit offsets: a cache may have more elements than an int32 counts.
    token = tl.arange(0, TOKENS).to(tl.int64)
    if head < HEADS:
        rows = q_ptr + (token * HEADS + head) * D
    elif head < HEADS + KV_HEADS:
        rows = k_ptr + ((token * KV_HEADS + head - HEADS) * capacity + position) * D
    else:
        rows = v_ptr + ((token * KV_HEADS + head - HEADS - KV_HEADS) * capacity + position) * D
    return rows


@triton.jit
def _rotated(low, high, cos, sin):
    """Pairs of a head for all tokens, low and high [P, TOKENS], turned by cos, sin [P]."""
    cos = cos[:, None]
    sin = sin[:, None]
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def _store_pairs(rows, low, high, pairs, mask, D: tl.constexpr):
    """Store pairs of a head, low and high [P, TOKENS], into the rows [TOKENS]."""
    places = rows[None, :] + pairs[:, None]
    dtype = rows.dtype.element_ty
    tl.store(places, low.to(dtype), mask=mask)
    tl.store(places + D // 2, high.to(dtype), mask=mask)


@triton.jit
def _store_normed_head(
    raw_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    rows,
    tokens_written,
    eps,
    BATCH: tl.constexpr,
    D: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """Norm, rotation and store of one whole head from its raw sums, float32 [BATCH, D]."""
    token = tl.arange(0, TOKENS)[None, :]
    pairs = tl.arange(0, HALF_BLOCK)
    inside = pairs < D // 2
    cos = tl.load(cos_ptr + pairs, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + pairs, mask=inside, other=0.0)
    low_weight = tl.load(weight_ptr + pairs, mask=inside, other=0.0).to(tl.float32)
    high_weight = tl.load(weight_ptr + D // 2 + pairs, mask=inside, other=0.0).to(tl.float32)
    places = raw_ptr + token * D + pairs[:, None]
    mask = inside[:, None] & (token < BATCH)
    low = tl.load(places, mask=mask, other=0.0)
    high = tl.load(places + D // 2, mask=mask, other=0.0)
    square_sum = tl.sum(low * low + high * high, axis=0)
    rstd = tl.rsqrt(square_sum / D + eps)[None, :]
    low *= rstd * low_weight[:, None]
    high *= rstd * high_weight[:, None]
    low, high = _rotated(low, high, cos, sin)
    _store_pairs(rows, low, high, pairs, inside[:, None] & (token < tokens_written), D)


@triton.jit
def _norm_qkv_rope_kernel(
    x_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    q_norm_ptr,
    k_norm_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    raw_ptr,
    counter_ptr,
    eps,
    qk_eps,
    capacity,
    table_rows,
    BATCH: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    QK_NORM: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WIDENED: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    PAIRS: tl.constexpr = ROWS // 2
    CHUNKS: tl.constexpr = (D // 2 + PAIRS - 1) // PAIRS
    head = tl.program_id(0) // CHUNKS
    first = (tl.program_id(0) % CHUNKS) * PAIRS
    # Rows of the tile alternate between the head's halves; past the end they repeat the last pair.
    lane = tl.arange(0, ROWS)
    inside = tl.minimum(first + lane // 2, D // 2 - 1) + (lane % 2) * (D // 2)
    w_ptr += head.to(tl.int64) * (D * K)
    prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL)
    position = tl.load(position_ptr)
    fits = (position >= 0) & (position < capacity)
    row = tl.minimum(tl.maximum(position, 0), table_rows - 1).to(tl.int64) * (D // 2)
    pairs = first + tl.arange(0, PAIRS)
    rotates = head < HEADS + KV_HEADS
    cos = tl.load(cos_ptr + row + pairs, mask=pairs < D // 2, other=0.0)
    sin = tl.load(sin_ptr + row + pairs, mask=pairs < D // 2, other=0.0)
    wait_for_previous(PDL)
    sums = products(w_ptr, inside, x_ptr, g_ptr, 0, eps, BATCH, K, BLOCK, 1, NORM, WIDENED)
    sums = finished(
        sums,
        scale_ptr,
        bias_ptr,
        (head * D + inside)[:, None],
        (lane < ROWS)[:, None],
        SCALED,
        BIASED,
    )
    low, high = split_pairs(sums)
    rows = _head_rows(q_ptr, k_ptr, v_ptr, head, position, capacity, HEADS, KV_HEADS, D)
    # Only q has a place whatever the position is.
    tokens_written = tl.where((head < HEADS) | fits, BATCH, 0)
    token = tl.arange(0, TOKENS)[None, :]
    present = (pairs < D // 2)[:, None]
    if QK_NORM and rotates:
        raw_ptr += head * (BATCH * D)
        places = raw_ptr + token * D + pairs[:, None]
        tl.store(places, low, mask=present & (token < BATCH))
        tl.store(places + D // 2, high, mask=present & (token < BATCH))
        # The count of one thread stands for the stores of all.
        tl.debug_barrier()
        if tl.atomic_add(counter_ptr + head, 1, sem="acq_rel") == CHUNKS - 1:
            weight_ptr = q_norm_ptr if head < HEADS else k_norm_ptr
            _store_normed_head(
                raw_ptr,
                weight_ptr,
                cos_ptr + row,
                sin_ptr + row,
                rows,
                tokens_written,
                qk_eps,
                BATCH,
                D,
                HALF_BLOCK,
            )
            tl.store(counter_ptr + head, 0)
    else:
        if rotates:
            low, high = _rotated(low, high, cos, sin)
        _store_pairs(rows, low, high, pairs, present & (token < tokens_written), D)


def norm_qkv_rope(
    x: torch.Tensor,
    norm: Norm | None,
    qkv: WeightMatrix,
    rope: RopeTable,
    position: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tile: Tile,
    workspace: Workspace,
    qk_norm: QkNorm | None = None,
    pdl: bool = False,
) -> Launch:
    """q = rotate(Wq n), K[position] = rotate(Wk n), V[position] = Wv n, n = RMSNorm(x) (x itself
    where `norm` is None); biases are added before, QK-norm is applied right before the rotation.

    Arguments as `decodescope.kernels.ops.norm_qkv_rope.norm_qkv_rope` has checked them. `tile.rows`
    counts rows of both halves of a head. QK-norm needs a float of workspace for each row of Q and K
    and each token, and a counter for each of their heads.

    Raises:
        ValueError: a tile below 16 x 16, or a workspace that is too small.
    """
    check_tile(tile)
    batch, heads, head_dim = q.shape
    kv_heads, capacity = k_cache.shape[1], k_cache.shape[2]
    if qk_norm is not None:
        workspace.check((heads + kv_heads) * head_dim * batch, heads + kv_heads, x.device)
    chunks = triton.cdiv(head_dim // 2, tile.rows // 2)
    return launch(
        _norm_qkv_rope_kernel,
        ((heads + 2 * kv_heads) * chunks,),
        x,
        None if norm is None else norm.weight,
        qkv.data,
        qkv.scale,
        qkv.bias,
        rope.cos,
        rope.sin,
        position,
        None if qk_norm is None else qk_norm.q_weight,
        None if qk_norm is None else qk_norm.k_weight,
        q,
        k_cache,
        v_cache,
        workspace.partials,
        workspace.counters,
        0.0 if norm is None else norm.eps,
        0.0 if qk_norm is None else qk_norm.eps,
        capacity,
        rope.positions,
        BATCH=batch,
        HEADS=heads,
        KV_HEADS=kv_heads,
        D=head_dim,
        K=qkv.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
        NORM=norm is not None,
        QK_NORM=qk_norm is not None,
        SCALED=qkv.scale is not None,
        BIASED=qkv.bias is not None,
        WIDENED=widened(x),
        PDL=pdl,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **launch_options(pdl),
    )
