"""How a stored element of a weight or of the KV cache becomes a number, and a number one of FP8.

Each conversion from an element is exact: float16 holds all values of E4M3, E5M2 and INT8. Pairs are
converted at once: E4M3 and E5M2 by one instruction for two elements (compute capability 8.9 and
later), INT8 by a byte permutation. None goes through bfloat16, which costs an instruction more for
each element.

INT8: the byte q + 128 in the low bits of the float16 1024 (0x6400) gives 1024 + q + 128, so that a
subtraction of 1152 leaves q. Integer-to-float conversion has a quarter of that rate.

Source: PTX ISA, cvt.rn.f16x2.e4m3x2 and prmt; Kim et al., "Who Says Elephants Can't Run"
(arXiv 2211.10017), for INT8.
"""

import triton
import triton.language as tl


@triton.jit
def as_float16(tile):
    """Elements of a narrow format as float16; other dtypes are rounded to it."""
    dtype: tl.constexpr = tile.dtype
    if dtype == tl.int8:
        if INTERPRETED:
            wide = tile.to(tl.float16)
        else:
            wide = tl.inline_asm_elementwise(
                """{
                .reg .b32 biased, low, high, offset;
                mov.b32 offset, 0x64806480;
                xor.b32 biased, $2, 0x80808080;
                prmt.b32 low, biased, 0x64646464, 0x4140;
                prmt.b32 high, biased, 0x64646464, 0x4342;
                sub.f16x2 $0, low, offset;
                sub.f16x2 $1, high, offset;
                }""",
                "=r,=r,r",
                [tile],
                dtype=tl.float16,
                is_pure=True,
                pack=4,
            )
    elif INTERPRETED and dtype == tl.float8e5:
        # The interpreter's cast has no infinities and no subnormal float16.
        bits = tile.to(tl.uint8, bitcast=True).to(tl.uint16) << 8
        wide = bits.to(tl.float16, bitcast=True)
    elif INTERPRETED and dtype == tl.float8e4nv:
        # The interpreter's cast has no NaN.
        magnitude = tile.to(tl.uint8, bitcast=True) & 0x7F
        wide = tl.where(magnitude == 0x7F, float("nan"), tile.to(tl.float16))
    else:
        wide = tile.to(tl.float16)
    return wide


@triton.jit
def saturated_float16(tile):
    """float32 rounded to float16; what is beyond its range becomes +-65504. NaN stays NaN."""
    if INTERPRETED or tile.numel == 1:
        half = tl.where(tile != tile, tile, tl.clamp(tile, -65504.0, 65504.0)).to(tl.float16)
    else:
        half = tl.inline_asm_elementwise(
            "cvt.rn.satfinite.f16x2.f32 $0, $2, $1;",
            "=r,r,r",
            [tile],
            dtype=tl.float16,
            is_pure=True,
            pack=2,
        )
    return half


@triton.jit
def as_float32(tile):
    """Stored elements of any format as float32."""
    dtype: tl.constexpr = tile.dtype
    if dtype == tl.int8 or (INTERPRETED and dtype.primitive_bitwidth == 8):
        wide = as_float16(tile).to(tl.float32)
    else:
        wide = tile.to(tl.float32)
    return wide


@triton.jit
def in_word_order(tile):
    """A tile [rows, columns] with its columns in another order, the same for every tile.

    For both sides of a product whose one side is narrow and converted on the way to 16-bit tensor
    cores; the sum over the columns does not change. There a thread takes columns 2 t, 2 t + 1,
    2 t + 8 and 2 t + 9 of each 16: four bytes from two places. In this order they come from
    columns 4 t to 4 t + 3, one word of memory: `ldmatrix` loads them, and four elements are
    converted in the register they arrive in. Columns must be a multiple of 16.

    Source: PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", and those of mma.m16n8k16.
    """
    rows: tl.constexpr = tile.shape[0]
    columns: tl.constexpr = tile.shape[1]
    words = tl.reshape(tile, (rows, columns // 16, 4, 2, 2))
    return tl.reshape(tl.permute(words, (0, 1, 3, 2, 4)), (rows, columns))


@triton.jit
def rounded(tile, dtype: tl.constexpr):
    """float32 numbers as elements of `dtype`, rounded to nearest, ties to even. Of FP8 and float16
    the largest value stands for any beyond it, infinities too; NaN stays NaN."""
    LARGEST: tl.constexpr = 57344.0 if dtype == tl.float8e5 else 448.0
    if dtype == tl.float16:
        narrow = saturated_float16(tile)
    elif dtype.primitive_bitwidth != 8:
        narrow = tile.to(dtype)
    elif INTERPRETED:
        narrow = _code(tile, LARGEST, dtype == tl.float8e5).to(dtype, bitcast=True)
    else:
        narrow = tl.clamp(tile, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL).to(dtype)
    return narrow


@triton.jit
def _code(tile, LARGEST: tl.constexpr, E5M2: tl.constexpr):
    """`rounded` as integers, because the interpreter's cast carries no digit into the exponent."""
    # Of the format: bits of the significand, and the offset of its exponents from float32's.
    DIGITS: tl.constexpr = 2 if E5M2 else 3
    OFFSET: tl.constexpr = 112 if E5M2 else 120
    CUT: tl.constexpr = 23 - DIGITS
    magnitude = tl.minimum(tl.abs(tile), LARGEST)
    bits = magnitude.to(tl.uint32, bitcast=True)
    normal = ((bits + (1 << (CUT - 1)) - 1 + ((bits >> CUT) & 1)) >> CUT) - (OFFSET << DIGITS)
    # Added to this, a multiple of the smallest subnormal is an integer in the last bits.
    shift: tl.constexpr = (OFFSET + 24 - DIGITS) << 23
    last_bit = tl.full(tile.shape, shift, tl.uint32).to(tl.float32, bitcast=True)
    subnormal = (magnitude + last_bit).to(tl.uint32, bitcast=True) - shift
    code = tl.where(bits < ((OFFSET + 1) << 23), subnormal, normal)
    code = tl.where(tile != tile, 0x7F, code)
    negative = (tile.to(tl.uint32, bitcast=True) >> 31) << 7
    return (code | negative).to(tl.uint8)


_E4M3_WORD = tl.constexpr(
    """{
    .reg .b32 low, high;
    .reg .b16 first, last;
    mov.b32 {first, last}, $4;
    cvt.rn.f16x2.e4m3x2 low, first;
    cvt.rn.f16x2.e4m3x2 high, last;
    mov.b32 {$0, $1}, low;
    mov.b32 {$2, $3}, high;
    }"""
)
# E5M2 is the upper half of a float16.
_E5M2_WORD = tl.constexpr(
    """{
    .reg .b32 low, high;
    prmt.b32 low, $4, 0, 0x1404;
    prmt.b32 high, $4, 0, 0x3424;
    mov.b32 {$0, $1}, low;
    mov.b32 {$2, $3}, high;
    }"""
)
_INT8_WORD = tl.constexpr(
    """{
    .reg .b32 biased, low, high, offset;
    mov.b32 offset, 0x64806480;
    xor.b32 biased, $4, 0x80808080;
    prmt.b32 low, biased, 0x64646464, 0x4140;
    prmt.b32 high, biased, 0x64646464, 0x4342;
    sub.f16x2 low, low, offset;
    sub.f16x2 high, high, offset;
    mov.b32 {$0, $1}, low;
    mov.b32 {$2, $3}, high;
    }"""
)


@triton.jit
def words_as_float16(words, dtype: tl.constexpr):
    """int32 words [rows, n], of four elements of the narrow `dtype` each, as float16 [rows, 4 n]
    `in_word_order`.

    Of words Triton 3.6 copies 16 bytes a thread and places them in shared memory without bank
    conflicts; of bytes, 8, or all rows in the same banks.
    """
    if INTERPRETED:
        first = _byte_as_float16(words, 0, dtype)
        second = _byte_as_float16(words, 1, dtype)
        third = _byte_as_float16(words, 2, dtype)
        fourth = _byte_as_float16(words, 3, dtype)
    else:
        first, second, third, fourth = tl.inline_asm_elementwise(
            _E4M3_WORD
            if dtype == tl.float8e4nv
            else _E5M2_WORD
            if dtype == tl.float8e5
            else _INT8_WORD,
            "=h,=h,=h,=h,r",
            [words],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )
    fours = tl.join(tl.join(first, third), tl.join(second, fourth))
    return in_word_order(tl.reshape(fours, (words.shape[0], 4 * words.shape[1])))


@triton.jit
def _byte_as_float16(words, place: tl.constexpr, dtype: tl.constexpr):
    byte = ((words >> (8 * place)) & 0xFF).to(tl.uint8)
    return as_float16(byte.to(dtype, bitcast=True))


# Triton's interpreter runs no inline assembly. Whether it runs the kernels is decided when they are
# defined.
INTERPRETED = tl.constexpr(not isinstance(as_float16, triton.JITFunction))
