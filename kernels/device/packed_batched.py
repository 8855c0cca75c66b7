"""Y = X W^T for up to 64 tokens and rows of 4 bits (`host/packing.py`), on the tensor cores.

As `batched_product.py`. Words are copied to shared memory as they are, and become eight float16 in
the register that they arrive in: integers after their zero point is subtracted, which is exact, and
their scale multiplied, rounded once, or, where all columns of a block are in one group, as they
are: the scale then multiplies the sum of the block in float32. E2M1 times its scale, exact from
2^-20 to 2^4 (E8M0) and for all scales of E4M3. Beyond, weights become infinite. x is rounded to
float16 as for all narrow weights. In a float32 model, both sides are float32.

The eight elements are those that a thread of the tensor cores takes of two times 16 columns, if x
has its columns in the same order. The sum over the columns does not change.

Source: PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", and those of mma.m16n8k16.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, saturated_float16
from decodescope.kernels.device.packed_codes import (
    CHUNK,
    PER_WORD,
    code_pair,
    code_unit,
    pair_values,
    scale_values,
    stored_scales,
)

# The byte of a scale whose exponent is 0 as a float16, 2^11 times as large: `code_unit` / 8.
_LEAST_EXPONENT = tl.constexpr(127 - 15 - 11)
# Mask and exponent in one instruction (0xEA is a & b | c), which ptxas does not make of two. Then
# 1024 + code less 1024 + zero, and (1024 + 16 code) / 16 less 64 + zero; then times the scale.
# Offsets are operands only where groups have zero points of their own: Triton would pass weights
# with an operand that does not change through shared memory.
_EVEN = """{{
    .reg .b32 code, offset;
    mov.b32 offset, {offset};
    lop3.b32 code, $2, 0x000F000F, 0x64006400, 0xEA;
    add.rn.f16x2 code, code, offset;
    {scaled}
    mov.b32 {{$0, $1}}, code;
    }}"""
_ODD = """{{
    .reg .b32 code, offset, sixteenth;
    mov.b32 offset, {offset};
    mov.b32 sixteenth, 0x2C002C00;
    lop3.b32 code, $2, 0x00F000F0, 0x64006400, 0xEA;
    fma.rn.f16x2 code, code, sixteenth, offset;
    {scaled}
    mov.b32 {{$0, $1}}, code;
    }}"""
_SCALED = "mul.rn.f16x2 code, code, $3;"
# -1032 and -72: the zero is 8.
_EVEN_INTEGERS = tl.constexpr(_EVEN.format(offset="0xE408E408", scaled=""))
_ODD_INTEGERS = tl.constexpr(_ODD.format(offset="0xD480D480", scaled=""))
_EVEN_SCALED = tl.constexpr(_EVEN.format(offset="0xE408E408", scaled=_SCALED))
_ODD_SCALED = tl.constexpr(_ODD.format(offset="0xD480D480", scaled=_SCALED))
_EVEN_ABOVE_ZERO = tl.constexpr(_EVEN.format(offset="$3", scaled=""))
_ODD_ABOVE_ZERO = tl.constexpr(_ODD.format(offset="$3", scaled=""))
_EVEN_ABOVE_ZERO_SCALED = tl.constexpr(_EVEN.format(offset="$4", scaled=_SCALED))
_ODD_ABOVE_ZERO_SCALED = tl.constexpr(_ODD.format(offset="$4", scaled=_SCALED))
_E2M1 = tl.constexpr(
    """{
    .reg .b32 product;
    mul.rn.f16x2 product, $2, $3;
    mov.b32 {$0, $1}, product;
    }"""
)


@triton.jit
def packed_gathered_products(
    w_ptr,
    rows,
    x_ptr,
    token,
    present,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """As `gathered_products`."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    EVEN: tl.constexpr = K % BLOCK == 0
    CHUNKS: tl.constexpr = (K + CHUNK - 1) // CHUNK
    HALF: tl.constexpr = x_ptr.dtype.element_ty != tl.float32 and not INTERPRETED
    word = tl.arange(0, BLOCK // PER_WORD)
    lane = tl.arange(0, BLOCK)
    SCALES: tl.constexpr = LAYOUT[1]
    INTEGERS: tl.constexpr = SCALES == "fp16" or SCALES == "fp16_zero"
    w_rows = (w_ptr + rows * LAYOUT[0])[:, None]
    x_rows = (x_ptr + token * K)[:, None]
    present = present[:, None]
    sums = tl.zeros((rows.shape[0], token.shape[0]), tl.float32)
    first = split * (STEPS * BLOCK)
    scales = _block_scales(w_ptr, rows, first, K, BLOCK, LAYOUT)
    APART: tl.constexpr = INTEGERS and scales.shape[1] == 1
    for start in range(first, tl.minimum(first + STEPS * BLOCK, K), BLOCK):
        # Tensors first: in the interpreter a constant plus a tensor is a constant.
        words, columns = word + start // PER_WORD, lane + start
        inside = None
        here = present
        if not EVEN:
            inside = (words < CHUNKS * (CHUNK // PER_WORD))[None, :]
            here = present & (columns < K)[None, :]
        codes = tl.load(
            w_rows + words[None, :],
            mask=inside,
            other=None if EVEN else 0,
            eviction_policy="evict_first",
        )
        # A block ahead: Triton copies no elements of one or two bytes ahead of their use.
        later = _block_scales(w_ptr, rows, start + BLOCK, K, BLOCK, LAYOUT)
        x = tl.load(x_rows + columns[None, :], mask=here, other=0.0)
        if HALF:
            x = x if x.dtype == tl.float16 else saturated_float16(x.to(tl.float32))
        else:
            x = x.to(tl.float32)
        w = _weights(codes.to(tl.uint32, bitcast=True), scales, SCALES, HALF, APART)
        x = tl.trans(_in_word_order(x))
        if HALF and not APART:
            sums = tl.dot(w, x, sums)
        else:
            # As in `gathered_products`.
            part = tl.dot(w, x, input_precision="ieee", max_num_imprecise_acc=BLOCK)
            sums += part * scale_values(scales, SCALES)[0] if APART else part
        scales = later
    return sums * _left_out(SCALES) if HALF else sums


@triton.jit
def _block_scales(w_ptr, rows, start, K: tl.constexpr, BLOCK: tl.constexpr, LAYOUT: tl.constexpr):
    """The scales [rows, parts] of the block of columns from `start` on, whose parts are in one
    group each: whole groups, if their size is a power of two."""
    GROUP: tl.constexpr = CHUNK if LAYOUT[1] == "e4m3" else LAYOUT[2]
    POWER: tl.constexpr = GROUP & -GROUP
    PART: tl.constexpr = POWER if POWER < BLOCK else BLOCK
    COUNT: tl.constexpr = 1 if GROUP >= K else BLOCK // PART
    part = tl.arange(0, COUNT) + start // PART
    group = tl.minimum(part // (GROUP // PART), (K - 1) // GROUP)
    return stored_scales(w_ptr, rows, group, None, K, LAYOUT)


@triton.jit
def _left_out(SCALES: tl.constexpr):
    """By what finished sums of float16 products are multiplied: factors of E2M1 would overflow."""
    left_out: tl.constexpr = 8.0 if SCALES == "e8m0" else 128.0 if SCALES == "e4m3" else 1.0
    return left_out


@triton.jit
def _in_word_order(x):
    """x [tokens, columns] with its columns in the order that `_weights` gives them."""
    tokens: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    eights = tl.reshape(x, (tokens, columns // PER_WORD, 2, 4))
    return tl.reshape(tl.permute(eights, (0, 1, 3, 2)), (tokens, columns))


@triton.jit
def _weights(words, stored, SCALES: tl.constexpr, HALF: tl.constexpr, APART: tl.constexpr):
    """The weights [rows, columns] of words [rows, columns / 8] and scales [rows, groups], which
    are not applied if they come APART."""
    rows: tl.constexpr = words.shape[0]
    chunks: tl.constexpr = words.shape[1] // 4
    low, high, zero = _factors(stored, words.shape[1], SCALES, HALF)
    if HALF:
        even, odd = zero, zero
        if SCALES == "fp16_zero":
            even, odd = _twice(-1024 - zero), _twice(-64 - zero)
        w0, v0 = _half_weights(words, 0, low, even, SCALES, APART)
        w1, v1 = _half_weights(words, 1, low, odd, SCALES, APART)
        w2, v2 = _half_weights(words, 2, high, even, SCALES, APART)
        w3, v3 = _half_weights(words, 3, high, odd, SCALES, APART)
    else:
        if APART:
            low, high = 1.0, 1.0
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
def _factors(stored, WORDS: tl.constexpr, SCALES: tl.constexpr, HALF: tl.constexpr):
    """The scales of the first and of the last 16 columns of chunks, [rows, WORDS], and the zero
    point, of stored scales [rows, groups]. With HALF scales are two float16 in 32 bits, as far as
    they are not `_left_out`."""
    if HALF and SCALES == "e8m0":
        # The exponent of a float16, from its zero to its infinity.
        exponent = stored.to(tl.int32) - _LEAST_EXPONENT
        low = _of_words(tl.minimum(tl.maximum(exponent, 0), 31) * 0x04000400, WORDS)
        high = low
        zero = 0.0
    else:
        first, second = scale_values(stored, SCALES)
        if HALF:
            E4M3: tl.constexpr = SCALES == "e4m3"
            unit = code_unit(0, SCALES) / _left_out(SCALES) if E4M3 else 1.0
            low = _of_words(_twice(first * unit), WORDS)
            high = _of_words(_twice(second * unit), WORDS) if E4M3 else low
        else:
            low = _of_words(first, WORDS)
            high = _of_words(second, WORDS) if SCALES == "e4m3" else low
        zero = 0.0 if SCALES == "e4m3" else second
        if SCALES == "fp16_zero":
            zero = _of_words(zero, WORDS)
    return low, high, zero


@triton.jit
def _of_words(number, WORDS: tl.constexpr):
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
def _half_weights(words, pair: tl.constexpr, factor, offset, SCALES: tl.constexpr, APART):
    codes = words >> 8 if pair >= 2 else words
    if SCALES == "fp16_zero" and APART:
        zeros: tl.constexpr = _ODD_ABOVE_ZERO if pair % 2 else _EVEN_ABOVE_ZERO
        first, second = _assembled(zeros, "=h,=h,r,r", [codes, offset])
    elif SCALES == "fp16_zero":
        both: tl.constexpr = _ODD_ABOVE_ZERO_SCALED if pair % 2 else _EVEN_ABOVE_ZERO_SCALED
        first, second = _assembled(both, "=h,=h,r,r,r", [codes, factor, offset])
    elif SCALES == "fp16" and APART:
        integers: tl.constexpr = _ODD_INTEGERS if pair % 2 else _EVEN_INTEGERS
        first, second = _assembled(integers, "=h,=h,r", [codes])
    elif SCALES == "fp16":
        scaled: tl.constexpr = _ODD_SCALED if pair % 2 else _EVEN_SCALED
        first, second = _assembled(scaled, "=h,=h,r,r", [codes, factor])
    else:
        codes = code_pair(words, pair, SCALES)
        first, second = _assembled(_E2M1, "=h,=h,r,r", [codes, factor])
    return first, second


@triton.jit
def _assembled(assembly: tl.constexpr, constraints: tl.constexpr, operands):
    return tl.inline_asm_elementwise(
        assembly,
        constraints,
        operands,
        dtype=(tl.float16, tl.float16),
        is_pure=True,
        pack=1,
    )


@triton.jit
def _float_weights(words, pair: tl.constexpr, scale, zero, SCALES: tl.constexpr):
    first, second = pair_values(words, pair, SCALES)
    return (first - zero) * scale, (second - zero) * scale
