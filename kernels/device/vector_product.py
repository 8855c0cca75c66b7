"""y = W x for one vector x, the inner loop of every batch-1 kernel.

A program has a few rows of W and loads blocks [rows, columns] of them, usually all, into registers
before the previous kernel has ended: that hides more of the memory's latency than a loop does (on
an H200 at 4096 x 14336, 28.7 us against 29.3 for one padded block and more for a loop). There is no
reuse, so the products run on the CUDA cores: each thread multiplies and adds its elements in
float32, then the sums are reduced over threads once.

RMSNorm is applied around the product: g[k] x[k] is multiplied, and the sum of x[k]^2, gathered on
the way, scales the finished sums.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float32
from decodescope.kernels.device.overlap import allow_next, wait_for_previous


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
    eps,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    PDL: tl.constexpr,
):
    """sums[r] = sum over k of W[r, k] n[k] (float32), n = RMSNorm(x) with weight g and `eps`, or x
    if g_ptr is None.

    rows [R] are row numbers from w_ptr on, all inside W. x, g: [K]. `split` of SPLITS takes its
    part of k (with a norm, SPLITS is 1). Waits for the previous kernel after it has issued the
    loads of the first AHEAD blocks of W and of the first block of g.
    """
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    # With splits, every block but the first of all may reach past K; without, only the last one.
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    LAST: tl.constexpr = STEPS - 1
    allow_next(PDL)
    columns = split * (STEPS * BLOCK) + tl.arange(0, BLOCK)
    tiles = (_tile(w_ptr, rows, columns, K, ANY or (UNEVEN and STEPS == 1)),)
    for step in tl.static_range(1, AHEAD):
        tile = _tile(w_ptr, rows, columns + step * BLOCK, K, ANY or (UNEVEN and step == LAST))
        # Triton unpacks no tuples.
        tiles = tiles + (tile,)  # type: ignore[assignment]  # noqa: RUF005
    if g_ptr is not None:
        first_g = _vector(g_ptr, columns, K, ANY or (UNEVEN and STEPS == 1))
    wait_for_previous(PDL)
    x = _vector(x_ptr, columns, K, ANY or (UNEVEN and STEPS == 1)).to(tl.float32)
    squares = x * x
    if g_ptr is not None:
        x *= first_g.to(tl.float32)
    # Not added to zeros: the compiler would keep that addition.
    total = as_float32(tiles[0]) * x[None, :]
    for step in tl.static_range(1, STEPS):
        here = columns + step * BLOCK
        x = _vector(x_ptr, here, K, ANY or (UNEVEN and step == LAST)).to(tl.float32)
        if g_ptr is not None:
            squares += x * x
            x *= _vector(g_ptr, here, K, ANY or (UNEVEN and step == LAST)).to(tl.float32)
        if step < AHEAD:
            total += as_float32(tiles[step]) * x[None, :]
        else:
            tile = _tile(w_ptr, rows, here, K, ANY or (UNEVEN and step == LAST))
            total += as_float32(tile) * x[None, :]
    square_sum = tl.sum(squares, axis=0)
    sums = tl.sum(total, axis=1)
    if g_ptr is not None:
        sums *= tl.rsqrt(square_sum / K + eps)
    return sums
