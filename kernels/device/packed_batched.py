"""Y = X W^T for up to 64 tokens and rows of 4 bits (`host/packing.py`), on the tensor cores.

As `batched_product.py`. Words are copied to shared memory as they are, and become weights in the
registers that they arrive in (`packed_weights.py`). x is rounded to float16 as for all narrow
weights, and beyond +-65504 it becomes that. In a float32 model, both sides are float32.

The float32 sums of each group of integers are multiplied by its scale: one multiplication for 8
weights. Of groups below 64 columns and of E2M1, weights are multiplied by their scale. No sum of a
group overflows: 15 * 65504 * columns is far below 2^127.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, saturated_float16
from decodescope.kernels.device.packed_codes import CHUNK, PER_WORD, stored_scales
from decodescope.kernels.device.packed_weights import (
    for_words,
    left_out,
    packed_weights,
    weight_factors,
)
from decodescope.kernels.host.packing import LONG_GROUP

# Groups of so many columns or more have their sums multiplied.
_LONG = tl.constexpr(LONG_GROUP)


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
                w = packed_weights(words, None, None, zero, SCALES, HALF)
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
        low, high, zero = weight_factors(scales, BLOCK // PER_WORD, SCALES, HALF)
        w = packed_weights(words, low, high, zero, SCALES, HALF)
        sums += tl.dot(w, x, input_precision="ieee", max_num_imprecise_acc=BLOCK)
        scales = later
    return sums * left_out(SCALES) if HALF else sums


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
        zero = for_words(tl.load((places + 2 * group + 1)[:, None]).to(tl.float32), COUNT)
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
