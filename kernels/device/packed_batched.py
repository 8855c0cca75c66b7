"""Y = X W^T for up to 64 tokens and rows of 4 bits (`host/packing.py`), on the tensor cores.

As `batched_product.py`. Words are copied to shared memory as they are, and become eight float16 in
the register that they arrive in, those that a thread of the tensor cores takes of two times 16
columns. x is rounded to float16 as for all narrow weights, and beyond +-65504 it becomes that. In a
float32 model, both sides are float32.

Integers are multiplied after their zero point is subtracted, which is exact, and the float32 sums
of each group by its scale: one multiplication for 8 weights. Of groups below 64 columns, weights
are multiplied by their scale, rounded once. No sum of a group overflows: 15 * 65504 * columns is
far below 2^127. E2M1 is multiplied by its scale, exact from 2^-20 to 2^4 (E8M0) and for all scales
of E4M3. Beyond, weights become infinite.

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
from decodescope.kernels.host.packing import LONG_GROUP

# The byte of a scale whose exponent is 0 as a float16, 2^11 times as large: `code_unit` / 8.
_LEAST_EXPONENT = tl.constexpr(127 - 15 - 11)
# Groups of so many columns or more have their sums multiplied.
_LONG = tl.constexpr(LONG_GROUP)
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
    group_scales,
    num_stages: tl.constexpr,
):
    """As `gathered_products`."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    HALF: tl.constexpr = x_ptr.dtype.element_ty != tl.float32 and not INTERPRETED
    SCALES: tl.constexpr = LAYOUT[1]
    GROUP: tl.constexpr = CHUNK if SCALES == "e4m3" else LAYOUT[2]
    # Columns in one group: all of a block, or a whole group, if its size is a power of two.
    POWER: tl.constexpr = BLOCK if GROUP >= K else GROUP & -GROUP
    PART: tl.constexpr = POWER if POWER < BLOCK else BLOCK
    first = split * (STEPS * BLOCK)
    end = tl.minimum(first + STEPS * BLOCK, K)
    w_rows = (w_ptr + rows * LAYOUT[0])[:, None]
    x_rows = (x_ptr + token * K)[:, None]
    present = present[:, None]
    if (SCALES == "fp16" or SCALES == "fp16_zero") and PART >= _LONG:
        sums = _scaled_sums(
            w_ptr,
            rows,
            w_rows,
            x_rows,
            present,
            first,
            end,
            K,
            BLOCK,
            PART,
            HALF,
            LAYOUT,
            group_scales,
            num_stages,
        )
    else:
        sums = _sums_of_scaled(
            w_ptr, rows, w_rows, x_rows, present, first, end, K, BLOCK, PART, HALF, LAYOUT
        )
    return sums


@triton.jit
def _scaled_sums(
    w_ptr,
    rows,
    w_rows,
    x_rows,
    present,
    first,
    end,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
    HALF: tl.constexpr,
    LAYOUT: tl.constexpr,
    group_scales,
    num_stages: tl.constexpr,
):
    """The sums of the columns from `first` to `end`: of each group, times its scale."""
    EVEN: tl.constexpr = K % BLOCK == 0
    SCALES: tl.constexpr = LAYOUT[1]
    GROUP: tl.constexpr = LAYOUT[2]
    # One word holds the scales of two groups.
    PAIRS: tl.constexpr = SCALES == "fp16" and BLOCK >= 2 * GROUP and BLOCK > PART
    UNIT: tl.constexpr = 2 * PART if PAIRS else PART
    sums = tl.zeros((rows.shape[0], x_rows.shape[0]), tl.float32)
    # A loop with stages of its own also copies ahead what no tl.dot takes: the scales.
    for start in tl.range(first, end, BLOCK, num_stages=num_stages):
        for unit in tl.static_range(BLOCK // UNIT):
            scales = _scale_words(group_scales, start + unit * UNIT, K, LAYOUT)
            for part in tl.static_range(UNIT // PART):
                place = start + unit * UNIT + part * PART
                words, x = _loaded(w_rows, x_rows, present, place, K, PART, EVEN, HALF)
                zero = _zero(w_ptr, rows, place, K, PART // PER_WORD, LAYOUT)
                w = _weights(words, None, None, zero, SCALES, HALF)
                # As in `gathered_products`; without a limit Triton splits products of float16.
                products = tl.dot(w, x, input_precision="ieee", max_num_imprecise_acc=PART)
                sums += products * _word_scale(scales, place // GROUP, SCALES)
    return sums


@triton.jit
def _sums_of_scaled(
    w_ptr,
    rows,
    w_rows,
    x_rows,
    present,
    first,
    end,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
    HALF: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """As `_scaled_sums`, of weights times their scale."""
    EVEN: tl.constexpr = K % BLOCK == 0
    SCALES: tl.constexpr = LAYOUT[1]
    sums = tl.zeros((rows.shape[0], x_rows.shape[0]), tl.float32)
    scales = _block_scales(w_ptr, rows, first, K, BLOCK, PART, LAYOUT)
    for start in range(first, end, BLOCK):
        # Ahead of their use, because Triton copies no elements of one or two bytes ahead.
        later = _block_scales(w_ptr, rows, start + BLOCK, K, BLOCK, PART, LAYOUT)
        words, x = _loaded(w_rows, x_rows, present, start, K, BLOCK, EVEN, HALF)
        low, high, zero = _factors(scales, BLOCK // PER_WORD, SCALES, HALF)
        w = _weights(words, low, high, zero, SCALES, HALF)
        sums += tl.dot(w, x, input_precision="ieee", max_num_imprecise_acc=BLOCK)
        scales = later
    return sums * _left_out(SCALES) if HALF else sums


@triton.jit
def _loaded(
    w_rows,
    x_rows,
    present,
    start,
    K: tl.constexpr,
    COLUMNS: tl.constexpr,
    EVEN: tl.constexpr,
    HALF: tl.constexpr,
):
    """The words [rows, COLUMNS / 8] and x [COLUMNS, tokens] of the columns from `start` on."""
    CHUNKS: tl.constexpr = (K + CHUNK - 1) // CHUNK
    # Tensors first: in the interpreter a constant plus a tensor is a constant.
    word = tl.arange(0, COLUMNS // PER_WORD) + start // PER_WORD
    columns = tl.arange(0, COLUMNS) + start
    inside = None
    if not EVEN:
        inside = (word < CHUNKS * (CHUNK // PER_WORD))[None, :]
        present = present & (columns < K)[None, :]
    words = tl.load(
        w_rows + word[None, :],
        mask=inside,
        other=None if EVEN else 0,
        eviction_policy="evict_first",
    )
    x = tl.load(x_rows + columns[None, :], mask=present, other=0.0)
    if HALF:
        x = x if x.dtype == tl.float16 else saturated_float16(x.to(tl.float32))
    else:
        x = x.to(tl.float32)
    return words.to(tl.uint32, bitcast=True), tl.trans(x)


@triton.jit
def _scale_words(group_scales, start, K: tl.constexpr, LAYOUT: tl.constexpr):
    """The word [rows, 1] that holds the scale of the group of the column `start`."""
    # Groups of a word.
    EACH: tl.constexpr = 2 if LAYOUT[1] == "fp16" else 1
    word = tl.minimum(start // (EACH * LAYOUT[2]), (K - 1) // (EACH * LAYOUT[2]))
    return tl.load((group_scales + word * LAYOUT[3])[:, None])


@triton.jit
def _block_scales(
    w_ptr,
    rows,
    start,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """`stored_scales` [rows, BLOCK / PART] of the columns from `start` on."""
    GROUP: tl.constexpr = CHUNK if LAYOUT[1] == "e4m3" else LAYOUT[2]
    columns = tl.arange(0, BLOCK // PART) * PART + start
    group = tl.minimum(columns // GROUP, (K - 1) // GROUP)
    return stored_scales(w_ptr, rows, group, None, K, LAYOUT)


@triton.jit
def _zero(w_ptr, rows, start, K: tl.constexpr, COUNT: tl.constexpr, LAYOUT: tl.constexpr):
    """The zero point [rows, COUNT] of the group of the column `start`, or that of all groups.

    Loaded by itself, where the word of its scale has been: as part of it, or carried by the loop,
    it would make Triton 3.6 pass weights through shared memory."""
    if LAYOUT[1] == "fp16_zero":
        WORDS: tl.constexpr = (K + CHUNK - 1) // CHUNK * (CHUNK // PER_WORD)
        places = (w_ptr + WORDS + rows * LAYOUT[0]).to(tl.pointer_type(tl.float16))
        group = tl.minimum(start // LAYOUT[2], (K - 1) // LAYOUT[2])
        zero = _of_words(tl.load((places + 2 * group + 1)[:, None]).to(tl.float32), COUNT)
    else:
        zero = 8.0
    return zero


@triton.jit
def _word_scale(words, group, SCALES: tl.constexpr):
    """The scale of a group in float32, of its word. Without assembly LLVM would convert two scales
    at once, and so wait for both."""
    bits = words.to(tl.uint32, bitcast=True)
    if SCALES == "fp16":
        bits = bits >> (16 * (group % 2)).to(tl.uint32)
    if INTERPRETED:
        scale = bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        scale = tl.inline_asm_elementwise(
            """{
            .reg .b16 low, high;
            mov.b32 {low, high}, $1;
            cvt.f32.f16 $0, low;
            }""",
            "=f,r",
            [bits],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return scale


@triton.jit
def _left_out(SCALES: tl.constexpr):
    """By what finished sums of float16 products are multiplied: factors of E2M1 would overflow."""
    left_out: tl.constexpr = 8.0 if SCALES == "e8m0" else 128.0 if SCALES == "e4m3" else 1.0
    return left_out


@triton.jit
def _weights(words, low, high, zero, SCALES: tl.constexpr, HALF: tl.constexpr):
    """The weights [rows, columns] of words [rows, columns / 8]: codes less their zero point, times
    the `_factors` `low` and `high` if they are not None."""
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
