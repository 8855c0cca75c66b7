"""The kernel of `norm_qkv_rope` for a batch: the same on the tensor cores, after the norm.

With splits it also writes and reads `qkv_workspace` floats of partial sums. The last program of a
block of rows adds them, and does what comes behind the product.
"""

import triton
import triton.language as tl

from decodescope.kernels.device import batched_product
from decodescope.kernels.device.head_rows import (
    head_rows,
    inverse_scales,
    program_partners,
    rotated,
    store_head,
    store_normed_heads,
    store_pairs,
)
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import group_scale_places, scale_and_bias, split_sums


@triton.jit
def _norm_qkv_rope_batched_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    q_norm_ptr,
    k_norm_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    raw_ptr,
    counter_ptr,
    eps,
    qk_eps,
    capacity,
    table_rows,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    MATRIX_HEADS: tl.constexpr,
    NORMED_HEADS: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
    SPLITS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    PAIRS: tl.constexpr = ROWS // 2
    CHUNKS: tl.constexpr = (D // 2 + PAIRS - 1) // PAIRS
    block = tl.program_id(0)
    split = tl.program_id(1) if SPLITS > 1 else 0
    head = block // CHUNKS
    first = (block % CHUNKS) * PAIRS
    # Beyond the matrix, V is K.
    matrix_head = tl.where(head < MATRIX_HEADS, head, head - KV_HEADS)
    w_ptr += matrix_head.to(tl.int64) * (D * LAYOUT[0])
    w_ptr, inside, rows = program_partners(w_ptr, first, D, LAYOUT[0], ROWS, DISTANCE)
    rows += matrix_head * D
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], None)
    group_scales = group_scale_places(group_scale_ptr, rows, LAYOUT)
    batched_product.prefetch_rows(w_ptr, inside, split, K, BLOCK, SPLITS, PDL, LAYOUT)
    position = tl.load(position_ptr)
    fits = (position >= 0) & (position < capacity)
    row = tl.minimum(tl.maximum(position, 0), table_rows - 1).to(tl.int64) * (D // 2)
    pairs = first + tl.arange(0, PAIRS)
    rotates = head < HEADS + KV_HEADS
    cos = tl.load(cos_ptr + row + pairs, mask=pairs < D // 2, other=0.0)
    sin = tl.load(sin_ptr + row + pairs, mask=pairs < D // 2, other=0.0)
    token = tl.arange(0, TOKENS)[None, :]
    inverse = inverse_scales(k_scale_ptr, v_scale_ptr, head, token, token < BATCH, HEADS, KV_HEADS)
    wait_for_previous(PDL)
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
    sums, finishes = split_sums(sums, raw_ptr, counter_ptr, block, split, SPLITS)
    if finishes:
        sums = sums * scale + bias
        low, high = batched_product.split_pairs(sums)
        STORED: tl.constexpr = k_ptr.dtype.element_ty
        row_of = tl.arange(0, TOKENS).to(tl.int64)
        targets = head_rows(
            q_ptr, k_ptr, v_ptr, head, row_of, position, HEADS, KV_HEADS, capacity, D
        )
        # Only q is written regardless of the position.
        tokens_written = tl.where((head < HEADS) | fits, BATCH, 0)
        present = (pairs < D // 2)[:, None]
        if q_norm_ptr is not None and head < NORMED_HEADS:
            raw_ptr += head * (BATCH * D)
            if SPLITS > 1:
                # Behind what the splits use.
                raw_ptr += tl.num_programs(0) * (SPLITS * ROWS * TOKENS)
                counter_ptr += tl.num_programs(0)
            mask = present & (token < BATCH)
            store_pairs(raw_ptr + token * D, pairs[:, None], low, high, mask, D, DISTANCE)
            # One thread counts for all: their stores must be done.
            tl.debug_barrier()
            if tl.atomic_add(counter_ptr + head, 1, sem="acq_rel") == CHUNKS - 1:
                weight_ptr = q_norm_ptr if head < HEADS else k_norm_ptr
                store_normed_heads(
                    raw_ptr,
                    weight_ptr,
                    cos_ptr + row,
                    sin_ptr + row,
                    targets,
                    tokens_written,
                    head >= HEADS,
                    inverse,
                    rotates,
                    qk_eps,
                    STORED,
                    BATCH,
                    D,
                    DISTANCE,
                    HALF_BLOCK,
                )
                tl.store(counter_ptr + head, 0)
        else:
            if rotates:
                low, high = rotated(low, high, cos[:, None], sin[:, None])
            written, cached = present & (token < tokens_written), head >= HEADS
            places = targets[None, :]
            store_head(
                places, pairs[:, None], low, high, written, cached, inverse, STORED, D, DISTANCE
            )
