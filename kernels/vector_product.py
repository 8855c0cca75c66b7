"""y = W x for one vector x, the inner loop of every batch-1 kernel.

A program owns a few rows of W and keeps one tile [rows, columns] in registers; columns usually cover
the whole inner dimension, because one large tile, loaded before the previous kernel has ended, hides
more of the memory's latency than a loop. There is no reuse, so the products run on the CUDA cores:
each thread multiplies and adds its elements in float32, then the sums are reduced over threads once.
"""

import triton
import triton.language as tl

from decodescope.kernels.overlap import allow_next, wait_for_previous


@triton.jit
def _tile(w_ptr, rows, columns, K: tl.constexpr, MASKED: tl.constexpr):
    offsets = rows[:, None] * K + columns[None, :]
    # Weights are read once a step: they should not push activations out of the L2 cache.
    if MASKED:
        mask = (columns < K)[None, :]
        return tl.load(w_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    return tl.load(w_ptr + offsets, eviction_policy="evict_first")


@triton.jit
def _vector(ptr, columns, K: tl.constexpr, MASKED: tl.constexpr):
    if MASKED:
        return tl.load(ptr + columns, mask=columns < K, other=0.0)
    return tl.load(ptr + columns)


@triton.jit
def products(
    w_ptr,
    rows,
    x_ptr,
    g_ptr,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    """sums[r] = sum over k of W[r, k] g[k] x[k], and the sum of x[k]^2 (both float32).

    rows [R] are row numbers from w_ptr on, all inside W. x, g: [K]; without NORM g counts as 1 and
    the second result is 0. `split` of SPLITS takes its part of k. Waits for the previous kernel
    after the first tile of W and of g were asked for.
    """
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    UNEVEN: tl.constexpr = K % BLOCK != 0 or K % (STEPS * SPLITS * BLOCK) != 0
    allow_next(PDL)
    columns = split * (STEPS * BLOCK) + tl.arange(0, BLOCK)
    LAST_ONLY: tl.constexpr = SPLITS == 1 and STEPS > 1
    tile = _tile(w_ptr, rows, columns, K, UNEVEN and not LAST_ONLY)
    if NORM:
        g = _vector(g_ptr, columns, K, UNEVEN and not LAST_ONLY)
    wait_for_previous(PDL)
    x = _vector(x_ptr, columns, K, UNEVEN and not LAST_ONLY).to(tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    if NORM:
        squares = x * x
        x *= g.to(tl.float32)
    total = tile.to(tl.float32) * x[None, :]
    for step in tl.static_range(1, STEPS):
        columns += BLOCK
        tile = _tile(w_ptr, rows, columns, K, UNEVEN and (not LAST_ONLY or step == STEPS - 1))
        x = _vector(x_ptr, columns, K, UNEVEN and (not LAST_ONLY or step == STEPS - 1))
        x = x.to(tl.float32)
        if NORM:
            squares += x * x
            g = _vector(g_ptr, columns, K, UNEVEN and (not LAST_ONLY or step == STEPS - 1))
            x *= g.to(tl.float32)
        total += tile.to(tl.float32) * x[None, :]
    square_sum = 0.0
    if NORM:
        square_sum = tl.sum(squares, axis=0)
    return tl.sum(total, axis=1), square_sum
