"""Attention to one block of KV positions: its rows of the cache, and the softmax over blocks.

Per query head: m, the largest score so far; l, the sum of exp2(score - m); acc [D], the sum of
exp2(score - m) * value. Scores carry a factor log2(e), so that exp2 gives the softmax's exp.

A float8 cache is read in words of two neighbouring elements, int16, because shared memory can hand
the tensor cores transposed words of 16 bits, but no bytes. A block of words becomes two blocks of
float16, its even and its odd columns. So q, a block and acc are tuples of these two halves; of a
cache in any other type, tuples of one.

Source: FlashAttention-2 (arXiv 2307.08691), section 3.
"""

import math

import triton
import triton.language as tl

from decodescope.kernels.device.activations import soft_capped
from decodescope.kernels.device.elements import (
    INTERPRETED,
    as_float16,
    as_float32,
    saturated_float16,
)

_LOG2_E = tl.constexpr(math.log2(math.e))
# Two words, four elements: the even ones of both, then the odd ones of both.
_E4M3_PAIRS = tl.constexpr("""{
    .reg .b16 even, odd;
    .reg .b32 sorted;
    prmt.b32 sorted, $2, 0, 0x3120;
    mov.b32 {even, odd}, sorted;
    cvt.rn.f16x2.e4m3x2 $0, even;
    cvt.rn.f16x2.e4m3x2 $1, odd;
}""")
# E5M2 is the upper byte of float16.
_E5M2_PAIRS = tl.constexpr("""{
    prmt.b32 $0, $2, 0, 0x2404;
    and.b32 $1, $2, 0xff00ff00;
}""")


@triton.jit
def words(cache_ptr):
    """The cache by words: pairs of float8 elements, or the elements of any other type."""
    if cache_ptr.dtype.element_ty.primitive_bitwidth == 8:
        cache_ptr = cache_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
    return cache_ptr


@triton.jit
def head_scale(scale_ptr, head):
    """The scale of a KV head; 1 without scales."""
    scale = 1.0
    if scale_ptr is not None:
        scale = tl.load(scale_ptr + head)
    return scale


@triton.jit
def cache_block(head_ptr, first, end, capacity, lane, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows [first, first + BLOCK) of one head's cache, D words each; zero from `end` and D on."""
    row = first + tl.arange(0, BLOCK)
    mask = (row < end)[:, None]
    if lane.shape[0] != D:
        mask = mask & (lane < D)[None, :]
    # Rows past the cache are masked, but their addresses must stay inside it.
    row = tl.minimum(row, capacity - 1)
    return tl.load(head_ptr + row[:, None] * D + lane[None, :], mask=mask, other=0)


@triton.jit
def operand(q, STORED: tl.constexpr):
    """q as products with a cache of the type STORED take it: for float8 in float16, in which a
    value beyond its range, an infinite one too, is the largest one."""
    if STORED.primitive_bitwidth == 8:
        q = saturated_float16(q.to(tl.float32))
    return q


@triton.jit
def halves(tile, STORED: tl.constexpr):
    """A tile [rows, LANES] as its even and its odd columns, or whole, as the type STORED needs."""
    if STORED.primitive_bitwidth == 8:
        parts = tl.split(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 2, 2)))
    else:
        parts = (tile,)
    return parts


@triton.jit
def joined(halves):
    """The tile whose `halves` these are."""
    tile = halves[0]
    if len(halves) == 2:
        tile = tl.reshape(tl.join(tile, halves[1]), (tile.shape[0], 2 * tile.shape[1]))
    return tile


@triton.jit
def _block_halves(block, STORED: tl.constexpr):
    """A block of the cache as operands of products, exactly."""
    if STORED.primitive_bitwidth != 8:
        parts = (block,)
    elif INTERPRETED:
        even = (block & 255).to(tl.uint8).to(STORED, bitcast=True)
        odd = ((block >> 8) & 255).to(tl.uint8).to(STORED, bitcast=True)
        parts = as_float16(even), as_float16(odd)  # type: ignore[assignment]
    else:
        parts = tl.inline_asm_elementwise(
            _E5M2_PAIRS if tl.float8e5 == STORED else _E4M3_PAIRS,
            "=r,=r,r",
            [block],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    return parts


@triton.jit
def _dot(a, b, acc):
    # The interpreter's tl.dot reads bfloat16 as the integers that store it.
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _capped(scores, cap_log2):
    """Scores in units of log2, with a soft cap unless that is None."""
    if cap_log2 is not None:
        scores = soft_capped(scores, cap_log2)
    return scores


@triton.jit
def row_scores(q, k_row, scale_log2, cap_log2):
    """The scores [queries] of one row of K."""
    scores = tl.sum(q.to(tl.float32) * as_float32(k_row)[None, :], axis=1) * scale_log2
    return _capped(scores, cap_log2)


@triton.jit
def sink_scores(sink_ptr, heads, mask):
    """The sinks of query heads as scores, -inf without sinks and where the mask is off."""
    scores = tl.full(heads.shape, float("-inf"), tl.float32)
    if sink_ptr is not None:
        sinks = tl.load(sink_ptr + heads, mask=mask, other=0.0).to(tl.float32)
        scores = tl.where(mask, sinks * _LOG2_E, scores)
    return scores


@triton.jit
def attend_block(
    q,
    k,
    v,
    visible,
    scale_log2,
    cap_log2,
    m,
    l,  # noqa: E741
    acc,
    STORED: tl.constexpr,
):
    """The running softmax (m, l, acc) after one more block with `visible` rows [BLOCK]. q and acc
    are halves, k and v words."""
    scores = tl.zeros((q[0].shape[0], k.shape[0]), tl.float32)
    k_halves = _block_halves(k, STORED)
    for half in tl.static_range(len(q)):
        scores = _dot(q[half], tl.trans(k_halves[half]), scores)
    scores = _capped(scores * scale_log2, cap_log2)
    scores = tl.where(visible[None, :], scores, float("-inf"))
    largest = tl.maximum(m, tl.max(scores, axis=1))
    # Without a single visible row, -inf - -inf would be NaN.
    anchor = tl.where(largest == float("-inf"), 0.0, largest)
    p = tl.exp2(scores - anchor[:, None])
    fade = tl.exp2(m - anchor)
    l = l * fade + tl.sum(p, axis=1)  # noqa: E741
    v_halves = _block_halves(v, STORED)
    p = p.to(v_halves[0].dtype)
    added = ()
    for half in tl.static_range(len(q)):
        faded = acc[half] * fade[:, None]
        added = added + (_dot(p, v_halves[half], faded),)  # type: ignore[assignment]  # noqa: RUF005
    return largest, l, added


def later_block(block: int, splits: int, visible: int, crowded: bool) -> int:
    """Positions of each block after a split's first one, of `block`; 0 compiles no such block.

    They are copied through shared memory, where the first K was, half a block each of K and V (of
    float8 two of them): with more than 48 KiB no other program fits on the multiprocessor. With
    copies the compiler uses 168 registers instead of 208 (head_dim 128), so that a third program
    has room.

    If programs share multiprocessors (`crowded`), that pays even where the first blocks hold all of
    the `visible` rows but the new token's. Otherwise more registers are better.
    """
    if not crowded and visible - 1 <= block * splits:
        return 0
    return max(16, block // 2)
