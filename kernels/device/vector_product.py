"""y = W x for one vector x, the inner loop of every batch-1 kernel.

A program has a few rows of W and loads blocks [rows, columns] of them, usually all, into registers
before the previous kernel has ended: that hides more of the memory's latency than a loop does (on
an H200 at 4096 x 14336, 28.7 us against 29.3 for one padded block and more for a loop). There is no
reuse, so the products run on the CUDA cores: each thread multiplies and adds its elements in
float32, then the sums are reduced over threads once.

RMSNorm is applied around the product: g[k] x[k] is multiplied, and the sum of x[k]^2, gathered on
the way, scales the finished sums.

FP8 and INT8 weights have half the bytes but as many elements, so that the CUDA cores' instructions
would take as long as the memory: about 77 for 16 elements of a thread, 40 of them to convert,
multiply and add. With 16 rows or more such a tile is therefore multiplied on the tensor cores, in
float16: 21 to 40 instructions. The inner dimension is cut into chunks, which are the batch of a
batched product and whose sums are added. x is float16, after the norm where there is one.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float16, as_float32, saturated_float16
from decodescope.kernels.device.integer_product import integer_products
from decodescope.kernels.device.packed_product import packed_blocks, packed_products

# Columns of a chunk on the tensor cores. Sums of short chunks wait less for each other.
_CHUNK = tl.constexpr(64)
_LEAST_ROWS = tl.constexpr(16)
# The tensor cores multiply 8 vectors at least; Triton 3.4 asks for 16.
_COPIES = tl.constexpr(8 if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 5) else 16)


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
def _block_products(tile, x, sums):
    """`sums` [chunks, rows, copies] + tile [rows, columns] times x [columns] on the tensor cores,
    a chunk of the columns at a time. x is repeated for the smallest product they have."""
    CHUNKS: tl.constexpr = x.shape[0] // _CHUNK
    chunks = tl.permute(tl.reshape(tile, (tile.shape[0], CHUNKS, _CHUNK)), (1, 0, 2))
    if x.dtype.primitive_bitwidth == 8:
        x = as_float16(x)
    elif x.dtype != tl.float16:
        x = saturated_float16(x.to(tl.float32))
    x = tl.reshape(x, (CHUNKS, _CHUNK))
    repeated = tl.broadcast_to(x[:, :, None], (CHUNKS, _CHUNK, _COPIES))
    return tl.dot(as_float16(chunks), repeated, sums)


@triton.jit
def first_blocks(w_ptr, rows, g_ptr, split, K, BLOCK, SPLITS, AHEAD, LAYOUT: tl.constexpr):
    """The loads of `vector_products` before the previous kernel has ended: its first AHEAD blocks
    of W, then its first block of g, or a zero without g."""
    if LAYOUT[1] is None:
        blocks = _wide_blocks(w_ptr, rows, g_ptr, split, K, BLOCK, SPLITS, AHEAD)
    else:
        blocks = packed_blocks(w_ptr, rows, g_ptr, split, K, BLOCK, SPLITS, AHEAD, LAYOUT)
    return blocks


@triton.jit
def _wide_blocks(
    w_ptr,
    rows,
    g_ptr,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    # With splits, every block but the first of all may reach past K; without, only the last one.
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    columns = split * (STEPS * BLOCK) + tl.arange(0, BLOCK)
    blocks = (_tile(w_ptr, rows, columns, K, ANY or (UNEVEN and STEPS == 1)),)
    for step in tl.static_range(1, AHEAD):
        places = columns + step * BLOCK
        tile = _tile(w_ptr, rows, places, K, ANY or (UNEVEN and step == STEPS - 1))
        # Triton unpacks no tuples.
        blocks = blocks + (tile,)  # type: ignore[assignment]  # noqa: RUF005
    if g_ptr is not None:
        g = _vector(g_ptr, columns, K, ANY or (UNEVEN and STEPS == 1)).to(tl.float32)
    else:
        g = tl.zeros((BLOCK,), tl.float32)
    return blocks + (g,)  # noqa: RUF005


@triton.jit
def vector_products(
    first, w_ptr, rows, x_ptr, x_scale_ptr, g_ptr, eps, split, K, BLOCK, SPLITS, AHEAD, LAYOUT
):
    """sums[r] = sum over k of W[r, k] n[k] (float32), n = RMSNorm(x) with weight g and `eps`, or x
    if g_ptr is None. E4M3 x and integers have one scale, which multiplies the sums.

    `first` is what `first_blocks` gave. rows [R] are row numbers from w_ptr on, all inside W. x, g:
    [K]. `split` of SPLITS takes its part of k (with a norm, SPLITS is 1). LAYOUT is that of
    `WeightMatrix`, also of 4 bits. Call it after `wait_for_previous`.
    """
    if LAYOUT[1] is None:
        sums = _wide_products(
            first, w_ptr, rows, x_ptr, x_scale_ptr, g_ptr, eps, split, K, BLOCK, SPLITS, AHEAD
        )
    elif x_ptr.dtype.element_ty.is_int():
        sums = integer_products(
            first, w_ptr, rows, x_ptr, x_scale_ptr, split, K, BLOCK, SPLITS, AHEAD, LAYOUT
        )
    else:
        sums = packed_products(
            first, w_ptr, rows, x_ptr, g_ptr, eps, split, K, BLOCK, SPLITS, AHEAD, LAYOUT
        )
    return sums


@triton.jit
def _wide_products(
    first,
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    g_ptr,
    eps,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    LAST: tl.constexpr = STEPS - 1
    NARROW: tl.constexpr = w_ptr.dtype.element_ty.primitive_bitwidth == 8
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth <= 16
    LARGE: tl.constexpr = rows.shape[0] >= _LEAST_ROWS and BLOCK >= _CHUNK
    TENSOR_CORES: tl.constexpr = NARROW and HALF and LARGE
    columns = split * (STEPS * BLOCK) + tl.arange(0, BLOCK)
    if x_scale_ptr is not None:
        x_scale = tl.load(x_scale_ptr)
    stored_x = _vector(x_ptr, columns, K, ANY or (UNEVEN and STEPS == 1))
    x = as_float32(stored_x)
    squares = x * x
    if TENSOR_CORES:
        if g_ptr is not None:
            for step in tl.static_range(1, STEPS):
                later = _vector(x_ptr, columns + step * BLOCK, K, UNEVEN and step == LAST)
                squares += later.to(tl.float32) * later.to(tl.float32)
            rstd = tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
            blocks = _block_products(first[0], x * (first[AHEAD] * rstd), None)
        else:
            # Not through float32: a float16 x is copied as it is.
            blocks = _block_products(first[0], stored_x, None)
        for step in tl.static_range(1, STEPS):
            places = columns + step * BLOCK
            x = _vector(x_ptr, places, K, ANY or (UNEVEN and step == LAST))
            if g_ptr is not None:
                g = _vector(g_ptr, places, K, UNEVEN and step == LAST).to(tl.float32)
                x = x.to(tl.float32) * (g * rstd)
            if step < AHEAD:
                blocks = _block_products(first[step], x, blocks)
            else:
                tile = _tile(w_ptr, rows, places, K, ANY or (UNEVEN and step == LAST))
                blocks = _block_products(tile, x, blocks)
        # The copies are equal, and so is a power of two of them divided by it, NaN included.
        sums = tl.sum(tl.sum(blocks, axis=0), axis=1) / _COPIES
        if x_scale_ptr is not None:
            sums *= x_scale
        return sums
    if g_ptr is not None:
        x *= first[AHEAD]
    # Not added to zeros: the compiler would keep that addition.
    total = as_float32(first[0]) * x[None, :]
    for step in tl.static_range(1, STEPS):
        places = columns + step * BLOCK
        x = as_float32(_vector(x_ptr, places, K, ANY or (UNEVEN and step == LAST)))
        if g_ptr is not None:
            squares += x * x
            x *= _vector(g_ptr, places, K, ANY or (UNEVEN and step == LAST)).to(tl.float32)
        if step < AHEAD:
            total += as_float32(first[step]) * x[None, :]
        else:
            tile = _tile(w_ptr, rows, places, K, ANY or (UNEVEN and step == LAST))
            total += as_float32(tile) * x[None, :]
    square_sum = tl.sum(squares, axis=0)
    sums = tl.sum(total, axis=1)
    if g_ptr is not None:
        sums *= tl.rsqrt(square_sum / K + eps)
    if x_scale_ptr is not None:
        sums *= x_scale
    return sums
