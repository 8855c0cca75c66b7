"""The rows of one head of Q, K or V: where a program stores them, and QK-norm with rotation.

A row is handled as its pairs, whose elements `low` and `high` are rotated together. They lie
DISTANCE apart: D/2 where the whole head is rotated, R/2 where only its first R elements are, and 1
where neighbours are. All elements of a head belong to a pair; the last pairs may not turn.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.weight_rows import program_pairs


@triton.jit
def partners(pairs, D: tl.constexpr, DISTANCE: tl.constexpr):
    """The elements of a head that `pairs`, numbers below D/2, consist of: low and high."""
    low = pairs
    high = pairs + D // 2
    if DISTANCE == 1:
        low = 2 * pairs
        high = low + 1
    elif DISTANCE != D // 2:
        # What is not rotated has pairs of its own, half of its length apart.
        rest = pairs >= DISTANCE
        low = tl.where(rest, pairs + DISTANCE, pairs)
        high = low + tl.where(rest, D // 2 - DISTANCE, DISTANCE)
    return low, high


@triton.jit
def program_partners(w_ptr, first, D: tl.constexpr, K: tl.constexpr, ROWS, DISTANCE: tl.constexpr):
    """As `program_pairs`, the rows of the pairs of one head, which w_ptr points to."""
    w_ptr, inside, rows = program_pairs(w_ptr, first, D // 2, K, ROWS)
    if DISTANCE != D // 2:
        lane = tl.arange(0, ROWS)
        low, high = partners(tl.minimum(first + lane // 2, D // 2 - 1), D, DISTANCE)
        rows = tl.where(lane % 2 == 0, low, high)
        w_ptr -= first.to(tl.int64) * K
        inside = rows
    return w_ptr, inside, rows


@triton.jit
def head_rows(q_ptr, k_ptr, v_ptr, head, token, position, HEADS, KV_HEADS, capacity, D):
    """Where the head's row of `token` (a number or a block of them) is stored: in q [batch, HEADS,
    D], or at `position` in the K or V cache [batch, KV_HEADS, capacity, D]. As a pointer to q's
    type: branches must give one type, and a cache may hold float8."""
    # 64-bit offsets: a cache may have more than 2^31 elements.
    if head < HEADS:
        rows = q_ptr + (token * HEADS + head) * D
    elif head < HEADS + KV_HEADS:
        rows = k_ptr + ((token * KV_HEADS + head - HEADS).to(tl.int64) * capacity + position) * D
        rows = rows.to(q_ptr.dtype, bitcast=True)
    else:
        value_head = (token * KV_HEADS + head - HEADS - KV_HEADS).to(tl.int64)
        rows = v_ptr + (value_head * capacity + position) * D
        rows = rows.to(q_ptr.dtype, bitcast=True)
    return rows


@triton.jit
def inverse_scale(scale_ptr, head, mask):
    """1 / the scale of a KV head, whose rows a cache holds times this; 1 without scales and where
    the mask is off."""
    inverse = 1.0
    if scale_ptr is not None:
        inverse = tl.div_rn(1.0, tl.load(scale_ptr + head, mask=mask, other=1.0))
    return inverse


@triton.jit
def inverse_scales(k_scale_ptr, v_scale_ptr, head, token, present, HEADS, KV_HEADS):
    """`inverse_scale` of the head in each `token` that is `present`; of a query, any."""
    inverse = 1.0
    if k_scale_ptr is not None:
        scale_ptr = k_scale_ptr if head < HEADS + KV_HEADS else v_scale_ptr
        cache_head = token * KV_HEADS + tl.maximum(head - HEADS, 0) % KV_HEADS
        inverse = inverse_scale(scale_ptr, cache_head, present)
    return inverse


@triton.jit
def rotated(low, high, cos, sin):
    """The pairs (low, high) turned by their angles."""
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def store_pairs(rows, pairs, low, high, mask, D: tl.constexpr, DISTANCE: tl.constexpr):
    """Store the two elements of `pairs` in `rows`."""
    dtype: tl.constexpr = rows.dtype.element_ty
    low_place, high_place = partners(pairs, D, DISTANCE)
    tl.store(rows + low_place, rounded(low, dtype), mask=mask)
    tl.store(rows + high_place, rounded(high, dtype), mask=mask)


@triton.jit
def load_pairs(row_ptr, pairs, mask, D: tl.constexpr, DISTANCE: tl.constexpr):
    """The two elements of `pairs` in float32, zeros where the mask is off."""
    low_place, high_place = partners(pairs, D, DISTANCE)
    low = tl.load(row_ptr + low_place, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(row_ptr + high_place, mask=mask, other=0.0).to(tl.float32)
    return low, high


@triton.jit
def store_head(
    rows,
    pairs,
    low,
    high,
    mask,
    cached,
    inverse,
    STORED: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
):
    """Store the elements of these pairs in `rows` of `head_rows`: of a query as they are, or, if
    `cached`, times `inverse` in the type STORED of the caches."""
    if rows.dtype.element_ty == STORED:
        store_pairs(rows, pairs, low, high, mask, D, DISTANCE)
    elif cached:
        cache_rows = rows.to(tl.pointer_type(STORED), bitcast=True)
        low, high = low * inverse, high * inverse
        store_pairs(cache_rows, pairs, low, high, mask, D, DISTANCE)
    else:
        store_pairs(rows, pairs, low, high, mask, D, DISTANCE)


@triton.jit
def store_normed_head(
    raw_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    row_ptr,
    written,
    cached,
    inverse,
    rotates,
    eps,
    STORED: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """Norm, rotate and store one whole head from its raw sums, float32 [D]: its first `written`
    pairs. One that does not rotate (V) has no weight. The rest is as in `store_head`."""
    pairs = tl.arange(0, HALF_BLOCK)
    mask = pairs < D // 2
    low, high = load_pairs(raw_ptr, pairs, mask, D, DISTANCE)
    rstd = tl.rsqrt((tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)) / D + eps)
    low_weight, high_weight = load_pairs(weight_ptr, pairs, mask, D, DISTANCE)
    low *= rstd * tl.where(rotates, low_weight, 1.0)
    high *= rstd * tl.where(rotates, high_weight, 1.0)
    turned = pairs < tl.where(rotates, D // 2, 0)
    cos = tl.load(cos_ptr + pairs, mask=turned, other=1.0)
    sin = tl.load(sin_ptr + pairs, mask=turned, other=0.0)
    low, high = rotated(low, high, cos, sin)
    store_head(row_ptr, pairs, low, high, pairs < written, cached, inverse, STORED, D, DISTANCE)


@triton.jit
def store_normed_together(
    raw_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    row_ptr,
    row_stride,
    heads,
    written,
    cached,
    scale_ptr,
    eps,
    STORED: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """As `store_normed_head`, all heads of Q or of K, from their raw sums [heads, D], with one norm
    for all: into rows that lie `row_stride` apart. `scale_ptr` has the scales of a cache."""
    pairs = tl.arange(0, HALF_BLOCK)[None, :]
    head = tl.arange(0, HEADS_BLOCK)[:, None]
    inside = pairs < D // 2
    mask = inside & (head < heads)
    low, high = load_pairs(raw_ptr + head * D, pairs, mask, D, DISTANCE)
    square_sum = tl.sum(tl.sum(low * low + high * high, axis=1), axis=0)
    rstd = tl.rsqrt(square_sum / (heads * D) + eps)
    low_weight, high_weight = load_pairs(weight_ptr + head * D, pairs, mask, D, DISTANCE)
    low *= rstd * low_weight
    high *= rstd * high_weight
    cos = tl.load(cos_ptr + pairs, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + pairs, mask=inside, other=0.0)
    low, high = rotated(low, high, cos, sin)
    inverse = inverse_scale(scale_ptr, head, head < tl.where(cached, heads, 0))
    offsets = head.to(tl.int64) * row_stride
    if cached:
        cache_row = row_ptr.to(tl.pointer_type(STORED), bitcast=True)
        rows = (cache_row + offsets).to(row_ptr.dtype, bitcast=True)
    else:
        rows = row_ptr + offsets
    mask &= pairs < written
    store_head(rows, pairs, low, high, mask, cached, inverse, STORED, D, DISTANCE)


@triton.jit
def store_normed_heads(
    raw_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    rows,
    tokens_written,
    cached,
    inverse,
    rotates,
    eps,
    STORED: tl.constexpr,
    BATCH: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """As `store_normed_head`, from raw sums [BATCH, D] into `rows` [tokens]: of the first
    `tokens_written` tokens."""
    token = tl.arange(0, rows.shape[0])[None, :]
    pairs = tl.arange(0, HALF_BLOCK)
    inside = pairs < D // 2
    turned = pairs < tl.where(rotates, D // 2, 0)
    cos = tl.load(cos_ptr + pairs, mask=turned, other=1.0)
    sin = tl.load(sin_ptr + pairs, mask=turned, other=0.0)
    low_weight, high_weight = load_pairs(weight_ptr, pairs, inside, D, DISTANCE)
    mask = inside[:, None] & (token < BATCH)
    low, high = load_pairs(raw_ptr + token * D, pairs[:, None], mask, D, DISTANCE)
    square_sum = tl.sum(low * low + high * high, axis=0)
    rstd = tl.rsqrt(square_sum / D + eps)[None, :]
    low *= rstd * tl.where(rotates, low_weight, 1.0)[:, None]
    high *= rstd * tl.where(rotates, high_weight, 1.0)[:, None]
    low, high = rotated(low, high, cos[:, None], sin[:, None])
    written = inside[:, None] & (token < tokens_written)
    store_head(
        rows[None, :], pairs[:, None], low, high, written, cached, inverse, STORED, D, DISTANCE
    )
