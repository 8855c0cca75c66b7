"""y = W x for one vector x and rows of 4 bits (`host/packing.py`): `vector_product.py` for them.

With an instruction or more to take each code out and one to multiply it, the CUDA cores would need
as long as the memory, or longer. So two codes are taken out at once (`packed_codes.py`), and
multiplied in pairs, as float16. A thread has chunks of 32 columns, 16 bytes of codes.

x is scaled by a power of two for each chunk, such that its largest magnitude is 2^14 to 2^15. Its
other numbers, and the sums of 16 columns, which are float16, keep the digits that float16 has. No
sum overflows: 8 codes of at most 15 * 2^-24 (E2M1: 6 * 2^-14) times 2^15 at most are below 1 (at
most 96). The sums of both halves of a pair are then float32, times their scale and the power of two
undone. The zero point of integers times the sum of x in a chunk is subtracted from the chunk's sum.

In a float32 model, codes and products are float32.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED
from decodescope.kernels.device.packed_codes import (
    CHUNK,
    chunk_scales,
    code_pair,
    code_unit,
    pair_values,
    scale_values,
)

# Exponents of float32: of 2^14 with the bias twice, and the least that keeps the factor finite.
_TO_LARGE = tl.constexpr(127 + 14 + 127)
_BACK = tl.constexpr(14)
_LEAST = tl.constexpr(15)


@triton.jit
def _block(
    w_ptr,
    rows,
    first,
    CHUNKS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The words [rows, 4 CHUNKS] and the stored scales [rows, CHUNKS] of the chunks from `first`
    on."""
    # In two dimensions: of three, Triton 3.6 gives neighbouring lanes the words of other rows.
    word = first * 4 + tl.arange(0, 4 * CHUNKS)
    places = (w_ptr + rows * LAYOUT[0])[:, None] + word[None, :]
    chunk = first + tl.arange(0, CHUNKS)
    if MASKED:
        inside = (word < (K + CHUNK - 1) // CHUNK * 4)[None, :]
        known = (chunk < (K + CHUNK - 1) // CHUNK)[None, :]
        words = tl.load(places, mask=inside, other=0, eviction_policy="evict_first")
        scales = chunk_scales(w_ptr, rows, chunk, known, K, LAYOUT)
    else:
        words = tl.load(places, eviction_policy="evict_first")
        scales = chunk_scales(w_ptr, rows, chunk, None, K, LAYOUT)
    return words, scales


@triton.jit
def _columns_of_pair(ptr, chunk, pair: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr):
    """The columns [chunks, 8] that pair `pair` of all words of a chunk has."""
    columns = chunk[:, None] * CHUNK + (8 * pair + tl.arange(0, 8))[None, :]
    if MASKED:
        return tl.load(ptr + columns, mask=columns < K, other=0.0)
    return tl.load(ptr + columns)


@triton.jit
def _columns(ptr, chunk, K: tl.constexpr, MASKED: tl.constexpr):
    return (
        _columns_of_pair(ptr, chunk, 0, K, MASKED),
        _columns_of_pair(ptr, chunk, 1, K, MASKED),
        _columns_of_pair(ptr, chunk, 2, K, MASKED),
        _columns_of_pair(ptr, chunk, 3, K, MASKED),
    )


@triton.jit
def _half_pairs(first, second):
    """Two float32 as two float16 in 32 bits, the first in the lower half."""
    return tl.inline_asm_elementwise(
        "cvt.rn.f16x2.f32 $0, $2, $1;",
        "=r,f,f",
        [first, second],
        dtype=tl.uint32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _product(x, y):
    return tl.inline_asm_elementwise(
        "mul.rn.f16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.uint32, is_pure=True, pack=1
    )


@triton.jit
def _product_added(x, y, total):
    return tl.inline_asm_elementwise(
        "fma.rn.f16x2 $0, $1, $2, $3;",
        "=r,r,r,r",
        [x, y, total],
        dtype=tl.uint32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _sum_of_pair(pair):
    """The sum of two float16 in float32."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b16 low, high;
        .reg .f32 first, second;
        mov.b32 {low, high}, $1;
        cvt.f32.f16 first, low;
        cvt.f32.f16 second, high;
        add.f32 $0, first, second;
        }""",
        "=f,r",
        [pair],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _of_words(x):
    """x [chunks, 4] as a tensor [chunks] for each word of a chunk."""
    even, odd = tl.split(tl.reshape(x, (x.shape[0], 2, 2)))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def _operands(x, factor, pair: tl.constexpr, SCALES: tl.constexpr, PAIRS: tl.constexpr):
    """x [chunks, 8] as the codes of one pair meet it: for each word a tensor [chunks] for the first
    and one for the second; with PAIRS both in one, times `factor` [chunks]."""
    first, second = tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, 4)), (0, 2, 1)))
    if PAIRS:
        factor = factor[:, None] * (code_unit(pair, SCALES) / code_unit(0, SCALES))
        operands = _of_words(_half_pairs(first * factor, second * factor))
    else:
        operands = _of_words(first) + _of_words(second)
    return operands


@triton.jit
def _added(
    total,
    words,
    x,
    word: tl.constexpr,
    pair: tl.constexpr,
    SCALES: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """`total`, if it is not None, and the products of pair `pair` of word `word` with its
    `_operands`."""
    if PAIRS:
        codes = code_pair(words[word], pair, SCALES)
        if total is None:
            total = _product(codes, x[word][None, :])
        else:
            total = _product_added(codes, x[word][None, :], total)
    else:
        first, second = pair_values(words[word], pair, SCALES)
        products = first * x[word][None, :] + second * x[word + 4][None, :]
        total = products if total is None else total + products
    return total


@triton.jit
def _half_sums(words, x0, x1, x2, x3, SCALES: tl.constexpr, PAIRS: tl.constexpr):
    """The sums [rows, chunks] of the products of the first two pairs of all words, and of the
    others, in float32."""
    low = None
    high = None
    # Word by word, the halves in turn: in other orders the compiler lets additions wait for each
    # other.
    for word in tl.static_range(4):
        low = _added(low, words, x0, word, 0, SCALES, PAIRS)
        high = _added(high, words, x2, word, 2, SCALES, PAIRS)
        low = _added(low, words, x1, word, 1, SCALES, PAIRS)
        high = _added(high, words, x3, word, 3, SCALES, PAIRS)
    if PAIRS:
        low = _sum_of_pair(low)
        high = _sum_of_pair(high)
    return low, high


@triton.jit
def _scaled(first, second, stored, x_sum, undo, SCALES: tl.constexpr):
    """The sums of the halves of a chunk, scaled and added. `x_sum` is that of the chunk, in the
    unit of the sums, and `undo` makes that 1."""
    scale, other = scale_values(stored, SCALES)
    if SCALES == "e4m3":
        total = (first * scale + second * other) * undo[None, :]
    else:
        total = first + second
        if SCALES != "e8m0":
            total -= x_sum[None, :] * other
        total *= scale * undo[None, :]
    return total


@triton.jit
def _row_sum(x):
    return tl.sum(x, axis=1)


@triton.jit
def packed_blocks(
    w_ptr,
    rows,
    g_ptr,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """The loads of `packed_products` before the previous kernel has ended: its first AHEAD blocks,
    then the first block of g, or a zero without g."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    CHUNKS: tl.constexpr = BLOCK // CHUNK
    first = split * (STEPS * CHUNKS)
    blocks = ()
    for step in tl.static_range(AHEAD):
        place = first + step * CHUNKS
        # In a variable, Triton would take a condition for one of run time.
        block = _block(w_ptr, rows, place, CHUNKS, K, LAYOUT, ANY or (UNEVEN and step == STEPS - 1))
        blocks = blocks + (block,)  # type: ignore[assignment]  # noqa: RUF005
    g = 0.0
    if g_ptr is not None:
        g = _columns(g_ptr, first + tl.arange(0, CHUNKS), K, ANY or (UNEVEN and STEPS == 1))
    return blocks + (g,)  # noqa: RUF005


@triton.jit
def packed_products(
    first,
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
    LAYOUT: tl.constexpr,
):
    """As `vector_products`; `first` is what `packed_blocks` gave."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    LAST: tl.constexpr = STEPS - 1
    CHUNKS: tl.constexpr = BLOCK // CHUNK
    ROWS: tl.constexpr = rows.shape[0]
    SCALES: tl.constexpr = LAYOUT[1]
    PAIRS: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16 and not INTERPRETED
    squares = tl.zeros((CHUNKS,), tl.float32)
    total = tl.zeros((ROWS, CHUNKS), tl.float32)
    for step in tl.static_range(STEPS):
        place = split * (STEPS * CHUNKS) + step * CHUNKS
        chunk = place + tl.arange(0, CHUNKS)
        x = _columns(x_ptr, chunk, K, ANY or (UNEVEN and step == LAST))
        x0, x1, x2, x3 = (
            x[0].to(tl.float32),
            x[1].to(tl.float32),
            x[2].to(tl.float32),
            x[3].to(tl.float32),
        )
        if g_ptr is not None:
            squares += _row_sum(x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3)
            g = first[AHEAD]
            if step > 0:
                g = _columns(g_ptr, chunk, K, ANY or (UNEVEN and step == LAST))
            x0 *= g[0].to(tl.float32)
            x1 *= g[1].to(tl.float32)
            x2 *= g[2].to(tl.float32)
            x3 *= g[3].to(tl.float32)
        x_sum = _row_sum((x0 + x1) + (x2 + x3))
        factor = tl.full((CHUNKS,), 1.0, tl.float32)
        undo = factor
        if PAIRS:
            largest = tl.maximum(
                tl.maximum(tl.abs(x0), tl.abs(x1)), tl.maximum(tl.abs(x2), tl.abs(x3))
            )
            bits = tl.max(largest, axis=1).to(tl.uint32, bitcast=True) & 0x7F800000
            bits = tl.maximum(bits, _LEAST << 23)
            unit = code_unit(0, SCALES)
            factor = ((_TO_LARGE << 23) - bits).to(tl.float32, bitcast=True)
            undo = (bits - (_BACK << 23)).to(tl.float32, bitcast=True) * unit
            x_sum *= factor * (1.0 / unit)
        operands0 = _operands(x0, factor, 0, SCALES, PAIRS)
        operands1 = _operands(x1, factor, 1, SCALES, PAIRS)
        operands2 = _operands(x2, factor, 2, SCALES, PAIRS)
        operands3 = _operands(x3, factor, 3, SCALES, PAIRS)
        if step < AHEAD:
            words, scales = first[step]
        else:
            words, scales = _block(
                w_ptr, rows, place, CHUNKS, K, LAYOUT, ANY or (UNEVEN and step == LAST)
            )
        words = tl.reshape(words.to(tl.uint32, bitcast=True), (ROWS, CHUNKS, 2, 2))
        even, odd = tl.split(words)
        word0, word2 = tl.split(even)
        word1, word3 = tl.split(odd)
        each = (word0, word1, word2, word3)
        low, high = _half_sums(each, operands0, operands1, operands2, operands3, SCALES, PAIRS)
        block = _scaled(low, high, scales, x_sum, undo, SCALES)
        # Not added to zeros: the compiler would keep that addition.
        total = block if step == 0 else total + block
    sums = tl.sum(total, axis=1)
    if g_ptr is not None:
        sums *= tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
    return sums
