"""y = W x for one vector x of int16 (`ops/rms_norm_integers.py`) and rows of INT4:
`packed_product.py` without floating point within a chunk.

A mask takes four codes out of a word, one a byte, and `dp4a` multiplies them by four int8 and adds
the products to an int32: of 8 codes 6 instructions in place of 9, as an int16 is two int8. Codes in
upper nibbles stay there, 16 times their value, so that all sums are 16 times theirs. The zero point
times the sum of x in the chunk is subtracted from the chunk's sum.

No sum overflows: of 32 columns it is at most 16 * 15 * 32 * 32,639 < 2^28. As a multiple of 16
float32 holds it exactly.

Source: PTX ISA, "dp4a".
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED
from decodescope.kernels.device.packed_codes import CHUNK, scale_values
from decodescope.kernels.device.packed_product import of_words, packed_block, split_words

# Words of int32 that a chunk of x has.
_X_WORDS = tl.constexpr(16)
_LOWER_NIBBLES = tl.constexpr(0x0F0F0F0F)
_UPPER_NIBBLES = tl.constexpr(0xF0F0F0F0)
_ALL_ONES = tl.constexpr(0x11111111)


@triton.jit
def _dot4(codes, x, total):
    """`total` int32 and the products of four uint8 with four int8."""
    if INTERPRETED:
        for byte in tl.static_range(4):
            code = ((codes >> (8 * byte)) & 0xFF).to(tl.int32)
            total += code * ((x << (24 - 8 * byte)) >> 24)
        return total
    return tl.inline_asm_elementwise(
        "dp4a.u32.s32 $0, $1, $2, $3;",
        "=r,r,r,r",
        [codes, x, total],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _masked_sum(words, mask: tl.constexpr, x, total):
    """`total` and the products of the masked codes of four words with four words of x."""
    for word in tl.static_range(4):
        total = _dot4(words[word] & mask, x[word][None, :], total)
    return total


@triton.jit
def _chunk_sum(words, x0, x1, x2, x3):
    """16 times the sums [rows, chunks] of the codes of four words times x, in int32. x0 to x3 are
    the words of x: upper bytes beside lower and upper nibbles, then lower bytes."""
    total = _masked_sum(words, _LOWER_NIBBLES, x0, 0)
    total = _masked_sum(words, _UPPER_NIBBLES, x1, total << 4)
    total = _masked_sum(words, _LOWER_NIBBLES, x2, total << 4)
    return _masked_sum(words, _UPPER_NIBBLES, x3, total << 4)


@triton.jit
def _x_words(
    x_ptr, first, number: tl.constexpr, CHUNKS: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr
):
    """The four words from `number` on of each chunk from `first` on, [chunks] each."""
    chunk = (first + tl.arange(0, CHUNKS))[:, None]
    places = x_ptr + chunk * _X_WORDS + (number + tl.arange(0, 4))[None, :]
    words = tl.load(places, mask=chunk < K // CHUNK, other=0) if MASKED else tl.load(places)
    return of_words(words)


@triton.jit
def integer_products(
    first,
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """As `vector_products` of int16 x in the order of `RmsNormIntegers`; `first` is what
    `packed_blocks` gave."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    UNEVEN: tl.constexpr = STEPS * SPLITS * BLOCK != K
    ANY: tl.constexpr = UNEVEN and SPLITS > 1
    LAST: tl.constexpr = STEPS - 1
    SCALES: tl.constexpr = LAYOUT[1]
    CHUNKS: tl.constexpr = BLOCK // CHUNK
    x_scale = tl.load(x_scale_ptr)
    x_ptr = x_ptr.to(tl.pointer_type(tl.int32))
    total = tl.zeros((rows.shape[0], CHUNKS), tl.float32)
    for step in tl.static_range(STEPS):
        place = split * (STEPS * CHUNKS) + step * CHUNKS
        # In a variable, Triton would take a condition for one of run time.
        x0 = _x_words(x_ptr, place, 0, CHUNKS, K, ANY or (UNEVEN and step == LAST))
        x1 = _x_words(x_ptr, place, 4, CHUNKS, K, ANY or (UNEVEN and step == LAST))
        x2 = _x_words(x_ptr, place, 8, CHUNKS, K, ANY or (UNEVEN and step == LAST))
        x3 = _x_words(x_ptr, place, 12, CHUNKS, K, ANY or (UNEVEN and step == LAST))
        ones = tl.full((1, CHUNKS), _ALL_ONES, tl.uint32)
        x_sum = _chunk_sum((ones, ones, ones, ones), x0, x1, x2, x3)
        if step < AHEAD:
            words, stored = first[step]
        else:
            words, stored = packed_block(
                w_ptr, rows, place, CHUNKS, K, LAYOUT, ANY or (UNEVEN and step == LAST)
            )
        each = split_words(words)
        sums = _chunk_sum(each, x0, x1, x2, x3)
        scale, zero = scale_values(stored, SCALES)
        if SCALES == "fp16":
            block = (sums - 8 * x_sum).to(tl.float32) * scale
        else:
            block = (sums.to(tl.float32) - x_sum.to(tl.float32) * zero) * scale
        total = block if step == 0 else total + block
    return tl.sum(total, axis=1) * (x_scale / 16)
