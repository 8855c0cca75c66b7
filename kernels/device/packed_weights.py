"""Words of 4 bits as the weights that the tensor cores multiply.

A word becomes eight float16 in the register that it arrives in, those that a thread of the tensor
cores takes of two times 16 columns; in a float32 model, eight float32.

The zero point of integers is subtracted, which is exact. Where weights are multiplied by their
scale, integers are rounded once. E2M1 times its scale is exact from 2^-20 to 2^4 (E8M0) and for all
scales of E4M3. Beyond, weights become infinite.

Source: PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", and those of mma.m16n8k16.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.packed_codes import (
    CHUNK,
    code_pair,
    code_unit,
    pair_values,
    scale_values,
)

# The byte of a scale whose exponent is 0 as a float16, 2^11 times as large: `code_unit` / 8.
_LEAST_EXPONENT = tl.constexpr(127 - 15 - 11)
# A mask and the exponent of 1024, or 64 for codes four bits further up, make 1024 + code or 64 +
# code, less 1024 + zero or 64 + zero. Offsets are operands only where groups have zero points of
# their own: Triton would pass weights with an operand that does not change through shared memory.
_INTEGERS = """{{
    .reg .b32 code, offset;
    mov.b32 offset, {offset};
    lop3.b32 code, $2, {mask}, {exponent}, 0xEA;
    add.rn.f16x2 code, code, offset;
    mov.b32 {{$0, $1}}, code;
    }}"""
_EVEN = {"mask": "0x000F000F", "exponent": "0x64006400"}
_ODD = {"mask": "0x00F000F0", "exponent": "0x54005400"}
# -1032 and -72: the zero is 8.
_EVEN_INTEGERS = tl.constexpr(_INTEGERS.format(offset="0xE408E408", **_EVEN))
_ODD_INTEGERS = tl.constexpr(_INTEGERS.format(offset="0xD480D480", **_ODD))
_EVEN_ABOVE_ZERO = tl.constexpr(_INTEGERS.format(offset="$3", **_EVEN))
_ODD_ABOVE_ZERO = tl.constexpr(_INTEGERS.format(offset="$3", **_ODD))
_PRODUCTS = tl.constexpr(
    """{
    .reg .b32 pair;
    mov.b32 pair, {$2, $3};
    mul.rn.f16x2 pair, pair, $4;
    mov.b32 {$0, $1}, pair;
    }"""
)
_E2M1 = tl.constexpr(
    """{
    .reg .b32 product;
    mul.rn.f16x2 product, $2, $3;
    mov.b32 {$0, $1}, product;
    }"""
)


@triton.jit
def left_out(SCALES: tl.constexpr):
    """By what finished sums of float16 products are multiplied: factors of E2M1 would overflow."""
    left_out: tl.constexpr = 8.0 if SCALES == "e8m0" else 128.0 if SCALES == "e4m3" else 1.0
    return left_out


@triton.jit
def packed_weights(words, low, high, zero, SCALES: tl.constexpr, HALF: tl.constexpr):
    """The weights [rows, columns] of words [rows, columns / 8]: codes less their zero point, times
    the `weight_factors` `low` and `high` if they are not None."""
    rows: tl.constexpr = words.shape[0]
    chunks: tl.constexpr = words.shape[1] // 4
    if HALF:
        even, odd = zero, zero
        if SCALES == "fp16_zero":
            even, odd = _twice(-1024 - zero), _twice(-64 - zero)
        w0, v0 = _half_weights(words, 0, low, even, SCALES)
        w1, v1 = _half_weights(words, 1, low, odd, SCALES)
        w2, v2 = _half_weights(words, 2, high, even, SCALES)
        w3, v3 = _half_weights(words, 3, high, odd, SCALES)
    else:
        w0, v0 = _float_weights(words, 0, low, zero, SCALES)
        w1, v1 = _float_weights(words, 1, low, zero, SCALES)
        w2, v2 = _float_weights(words, 2, high, zero, SCALES)
        w3, v3 = _float_weights(words, 3, high, zero, SCALES)
    first = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    second = tl.join(tl.join(v0, v2), tl.join(v1, v3))
    # Of code 4 s + 2 h + b of word t: [rows, chunks, t, s, h, b].
    eights = tl.reshape(tl.join(first, second), (rows, chunks, 4, 2, 2, 2))
    return tl.reshape(tl.permute(eights, (0, 1, 3, 4, 2, 5)), (rows, CHUNK * chunks))


@triton.jit
def weight_factors(stored, WORDS: tl.constexpr, SCALES: tl.constexpr, HALF: tl.constexpr):
    """The scales of the first and of the last 16 columns of chunks, [rows, WORDS], and the zero
    point, of stored scales [rows, groups]. With HALF scales are two float16 in 32 bits, as far as
    they are not `left_out`."""
    if HALF and SCALES == "e8m0":
        # The exponent of a float16, from its zero to its infinity.
        exponent = stored.to(tl.int32) - _LEAST_EXPONENT
        low = for_words(tl.minimum(tl.maximum(exponent, 0), 31) * 0x04000400, WORDS)
        high = low
        zero = 0.0
    else:
        first, second = scale_values(stored, SCALES)
        if HALF:
            E4M3: tl.constexpr = SCALES == "e4m3"
            unit = code_unit(0, SCALES) / left_out(SCALES) if E4M3 else 1.0
            low = for_words(_twice(first * unit), WORDS)
            high = for_words(_twice(second * unit), WORDS) if E4M3 else low
        else:
            low = for_words(first, WORDS)
            high = for_words(second, WORDS) if SCALES == "e4m3" else low
        zero = 0.0 if SCALES == "e4m3" else second
        if SCALES == "fp16_zero":
            zero = for_words(zero, WORDS)
    return low, high, zero


@triton.jit
def for_words(number, WORDS: tl.constexpr):
    """A number of each group [rows, groups] for each word [rows, WORDS]."""
    rows: tl.constexpr = number.shape[0]
    groups: tl.constexpr = number.shape[1]
    repeated = tl.broadcast_to(number[:, :, None], (rows, groups, WORDS // groups))
    return tl.reshape(repeated, (rows, WORDS))


@triton.jit
def _twice(x):
    """float32 as float16, in both halves of 32 bits."""
    bits = x.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.uint32)
    return bits | (bits << 16)


@triton.jit
def _half_weights(words, pair: tl.constexpr, factor, offset, SCALES: tl.constexpr):
    if SCALES == "fp16_zero" or SCALES == "fp16":
        first, second = _integers(words >> 8 if pair >= 2 else words, pair, offset, SCALES)
        if factor is not None:
            first, second = tl.inline_asm_elementwise(
                _PRODUCTS,
                "=h,=h,h,h,r",
                [first, second, factor],
                dtype=(tl.float16, tl.float16),
                is_pure=True,
                pack=1,
            )
    else:
        first, second = tl.inline_asm_elementwise(
            _E2M1,
            "=h,=h,r,r",
            [code_pair(words, pair, SCALES), factor],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )
    return first, second


@triton.jit
def _integers(words, pair: tl.constexpr, offset, SCALES: tl.constexpr):
    """The codes of pair `pair` less their zero point; words begin with pair 0 or 1."""
    if SCALES == "fp16_zero":
        assembly: tl.constexpr = _ODD_ABOVE_ZERO if pair % 2 else _EVEN_ABOVE_ZERO
        first, second = tl.inline_asm_elementwise(
            assembly,
            "=h,=h,r,r",
            [words, offset],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )
    else:
        known: tl.constexpr = _ODD_INTEGERS if pair % 2 else _EVEN_INTEGERS
        first, second = tl.inline_asm_elementwise(
            known, "=h,=h,r", [words], dtype=(tl.float16, tl.float16), is_pure=True, pack=1
        )
    return first, second


@triton.jit
def _float_weights(words, pair: tl.constexpr, scale, zero, SCALES: tl.constexpr):
    first, second = pair_values(words, pair, SCALES)
    first -= zero
    second -= zero
    if scale is not None:
        first *= scale
        second *= scale
    return first, second
