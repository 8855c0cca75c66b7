"""Codes of 4 bits and their scales as numbers, from the words that `host/packing.py` describes.

A mask, after a shift for most, takes two codes out of a word as two float16. The bits of an integer
below 16 are a subnormal float16, 2^-24 of it (16 times that four bits further up); those of E2M1,
where a float16 has its sign, lowest exponent bits and highest bit of the fraction, are 2^-14 of its
value, subnormal ones too. So no code is converted, and each is exact.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, as_float32

CHUNK = tl.constexpr(32)
PER_WORD = tl.constexpr(8)
_LEAST_FLOAT16 = tl.constexpr(2.0**24)
_LEAST_E2M1 = tl.constexpr(2.0**14)


@triton.jit
def _merged(x, y):
    """The bits of uint32 x where 0x82828282 has ones, else those of y."""
    if INTERPRETED:
        bits = (x & 0x82828282) | (y & 0x7D7D7D7D)
    else:
        # One instruction; of masks, the compiler would make two.
        bits = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, 0x82828282, 0xE4;",
            "=r,r,r",
            [x, y],
            dtype=tl.uint32,
            is_pure=True,
            pack=1,
        )
    return bits


@triton.jit
def code_pair(words, pair: tl.constexpr, SCALES: tl.constexpr):
    """Codes 2 `pair` and 2 `pair` + 1 of uint32 words as two float16, the first in the lower half,
    each times 1 / `code_unit`."""
    if SCALES == "fp16" or SCALES == "fp16_zero":
        shifted = words >> 8 if pair >= 2 else words
        bits = shifted & (0x00F000F0 if pair % 2 else 0x000F000F)
    else:
        # Of the pairs 2 and 3, which are those of 0 and 1 after two shifts.
        if pair >= 2:
            words = _merged(words << 1, words >> 2)
        bits = (words << 8 if pair % 2 else words) & 0x8E008E00
    return bits


@triton.jit
def code_unit(pair: tl.constexpr, SCALES: tl.constexpr):
    """By what the float16 of `code_pair` are multiplied to be the codes."""
    integers: tl.constexpr = SCALES == "fp16" or SCALES == "fp16_zero"
    even: tl.constexpr = _LEAST_FLOAT16 if integers else _LEAST_E2M1
    unit: tl.constexpr = even / 16 if integers and pair % 2 else even
    return unit


@triton.jit
def pair_values(words, pair: tl.constexpr, SCALES: tl.constexpr):
    """Codes 2 `pair` and 2 `pair` + 1 of uint32 words in float32."""
    bits = code_pair(words, pair, SCALES)
    first = (bits & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    second = (bits >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    unit = code_unit(pair, SCALES)
    return first * unit, second * unit


@triton.jit
def chunk_scales(w_ptr, rows, chunk, mask, K: tl.constexpr, LAYOUT: tl.constexpr):
    """The `stored_scales` [R, chunks] of chunks of 32 columns."""
    if LAYOUT[1] != "e4m3":
        chunk = chunk // (LAYOUT[2] // CHUNK)
    return stored_scales(w_ptr, rows, chunk, mask, K, LAYOUT)


@triton.jit
def stored_scales(w_ptr, rows, group, mask, K: tl.constexpr, LAYOUT: tl.constexpr):
    """The scales [R, groups] of groups as they are stored, of E4M3 those of two groups in each.
    rows [R] are row numbers from w_ptr on; `mask` [1, groups] or None."""
    WORDS: tl.constexpr = (K + CHUNK - 1) // CHUNK * (CHUNK // PER_WORD)
    SCALES: tl.constexpr = LAYOUT[1]
    places = (w_ptr + WORDS + rows * LAYOUT[0])[:, None]
    if SCALES == "fp16":
        places = places.to(tl.pointer_type(tl.float16))
    elif SCALES == "e8m0":
        places = places.to(tl.pointer_type(tl.uint8))
    elif SCALES == "e4m3":
        places = places.to(tl.pointer_type(tl.uint16))
    return tl.load(places + group[None, :], mask=mask, other=None if mask is None else 0)


@triton.jit
def scale_values(stored, SCALES: tl.constexpr):
    """`stored_scales` as float32: the scale and the zero point, or of E4M3 the scales of
    the first and of the last 16 columns."""
    if SCALES == "fp16":
        first = stored.to(tl.float32)
        second = 8.0
    elif SCALES == "fp16_zero":
        bits = stored.to(tl.uint32, bitcast=True)
        first = (bits & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        second = (bits >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    elif SCALES == "e8m0":
        # 2^(byte - 127); that of 0 is a subnormal number.
        bits = tl.maximum(stored.to(tl.uint32) << 23, 1 << 22)
        bits = tl.where(stored == 255, 0x7FC00000, bits)
        first = bits.to(tl.float32, bitcast=True)
        second = 0.0
    else:
        first = as_float32((stored & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True))
        second = as_float32((stored >> 8).to(tl.uint8).to(tl.float8e4nv, bitcast=True))
    return first, second
