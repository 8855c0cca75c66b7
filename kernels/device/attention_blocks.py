"""Attention to one block of KV positions: its rows of the cache, and the softmax over blocks.

Per query head: m, the largest score so far; l, the sum of exp2(score - m); acc [D], the sum of
exp2(score - m) * value. Scores carry a factor log2(e), so that exp2 gives the softmax's exp.

Source: FlashAttention-2 (arXiv 2307.08691), section 3.
"""

import triton
import triton.language as tl


@triton.jit
def cache_block(head_ptr, first, end, capacity, lane, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows [first, first + BLOCK) of one head's cache; zero from `end` on and beyond D."""
    row = first + tl.arange(0, BLOCK)
    mask = (row < end)[:, None]
    if lane.shape[0] != D:
        mask = mask & (lane < D)[None, :]
    # Rows past the cache are masked, but their addresses must stay inside it.
    row = tl.minimum(row, capacity - 1)
    return tl.load(head_ptr + row[:, None] * D + lane[None, :], mask=mask, other=0.0)


@triton.jit
def _dot(a, b, acc, INTERPRETED: tl.constexpr):
    # The interpreter's tl.dot reads bfloat16 as the integers that store it.
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def row_scores(q, k_row, scale_log2):
    """The scores [queries] of one row of K."""
    return tl.sum(q.to(tl.float32) * k_row.to(tl.float32)[None, :], axis=1) * scale_log2


@triton.jit
def attend_block(q, k, v, visible, scale_log2, m, l, acc, INTERPRETED: tl.constexpr):  # noqa: E741
    """The running softmax (m, l, acc) after one more block with `visible` rows [BLOCK]."""
    none = tl.zeros((q.shape[0], k.shape[0]), tl.float32)
    scores = _dot(q, tl.trans(k), none, INTERPRETED) * scale_log2
    scores = tl.where(visible[None, :], scores, float("-inf"))
    largest = tl.maximum(m, tl.max(scores, axis=1))
    # Without a single visible row, -inf - -inf would be NaN.
    anchor = tl.where(largest == float("-inf"), 0.0, largest)
    p = tl.exp2(scores - anchor[:, None])
    fade = tl.exp2(m - anchor)
    l = l * fade + tl.sum(p, axis=1)  # noqa: E741
    acc = _dot(p.to(v.dtype), v, acc * fade[:, None], INTERPRETED)
    return largest, l, acc
