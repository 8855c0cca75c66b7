"""One head's row of Q, K or V, as a program that has computed it leaves it behind."""

import triton
import triton.language as tl


@triton.jit
def head_destination(q_ptr, k_ptr, v_ptr, head, position, HEADS, KV_HEADS, capacity, D):
    """Where a head's row goes: q, or the position's row of the K or V cache (one sequence)."""
    if head < HEADS:
        target = q_ptr + head * D
    elif head < HEADS + KV_HEADS:
        target = k_ptr + ((head - HEADS).to(tl.int64) * capacity + position) * D
    else:
        target = v_ptr + ((head - HEADS - KV_HEADS).to(tl.int64) * capacity + position) * D
    return target


@triton.jit
def store_normed_head(
    raw_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    target_ptr,
    written,
    eps,
    D: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """Norm, rotation and store of one whole head from its raw float32 row [D]."""
    lane = tl.arange(0, HALF_BLOCK)
    mask = lane < D // 2
    low = tl.load(raw_ptr + lane, mask=mask, other=0.0)
    high = tl.load(raw_ptr + D // 2 + lane, mask=mask, other=0.0)
    rstd = tl.rsqrt((tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)) / D + eps)
    low *= rstd * tl.load(weight_ptr + lane, mask=mask, other=0.0).to(tl.float32)
    high *= rstd * tl.load(weight_ptr + D // 2 + lane, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + lane, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + lane, mask=mask, other=0.0)
    dtype = target_ptr.dtype.element_ty
    mask = lane < written
    tl.store(target_ptr + lane, (low * cos - high * sin).to(dtype), mask=mask)
    tl.store(target_ptr + D // 2 + lane, (high * cos + low * sin).to(dtype), mask=mask)
