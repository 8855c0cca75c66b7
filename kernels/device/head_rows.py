"""The rows of one head of Q, K or V: where a program stores them, and QK-norm with rotation.

A row is handled as its halves `low` and `high`, because rotation pairs element i with i + D/2.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded


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
def store_halves(places, low, high, mask, D: tl.constexpr):
    """Store `low` at `places` and `high` half a head further."""
    dtype: tl.constexpr = places.dtype.element_ty
    tl.store(places, rounded(low, dtype), mask=mask)
    tl.store(places + D // 2, rounded(high, dtype), mask=mask)


@triton.jit
def store_head(
    rows, pairs, low, high, mask, cached, inverse, STORED: tl.constexpr, D: tl.constexpr
):
    """Store the halves of these pairs in `rows` of `head_rows`: those of a query, or, if `cached`,
    times `inverse` in the type STORED of the caches."""
    if rows.dtype.element_ty == STORED:
        store_halves(rows + pairs, low, high, mask, D)
    elif cached:
        cache_rows = rows.to(tl.pointer_type(STORED), bitcast=True)
        store_halves(cache_rows + pairs, low * inverse, high * inverse, mask, D)
    else:
        store_halves(rows + pairs, low, high, mask, D)


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
    eps,
    STORED: tl.constexpr,
    D: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """Norm, rotate and store one whole head from its raw sums, float32 [D]: its first `written`
    pairs. The rest is as in `store_head`."""
    pairs = tl.arange(0, HALF_BLOCK)
    mask = pairs < D // 2
    low = tl.load(raw_ptr + pairs, mask=mask, other=0.0)
    high = tl.load(raw_ptr + D // 2 + pairs, mask=mask, other=0.0)
    rstd = tl.rsqrt((tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)) / D + eps)
    low *= rstd * tl.load(weight_ptr + pairs, mask=mask, other=0.0).to(tl.float32)
    high *= rstd * tl.load(weight_ptr + D // 2 + pairs, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + pairs, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + pairs, mask=mask, other=0.0)
    low, high = rotated(low, high, cos, sin)
    store_head(row_ptr, pairs, low, high, pairs < written, cached, inverse, STORED, D)


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
    eps,
    STORED: tl.constexpr,
    BATCH: tl.constexpr,
    D: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """As `store_normed_head`, from raw sums [BATCH, D] into `rows` [tokens]: of the first
    `tokens_written` tokens."""
    token = tl.arange(0, rows.shape[0])[None, :]
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
    low, high = rotated(low, high, cos[:, None], sin[:, None])
    written = inside[:, None] & (token < tokens_written)
    store_head(rows[None, :], pairs[:, None], low, high, written, cached, inverse, STORED, D)
