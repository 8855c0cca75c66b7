"""Y = X W^T for up to 64 tokens, the inner loop of every batched kernel.

Weights are read once for all tokens, so the products run on the tensor cores: W is the side with
many rows, and the tokens are the narrow side, padded to a power of two from 16 on. A program has a
few rows of W and loops over the inner dimension in blocks, while the next ones are copied to shared
memory (`num_stages`). Sums are float32.

No norm is applied here: every program would repeat it for all tokens, and x would pass through
registers on its way to the tensor cores.

Narrow weights (FP8, INT8) are stored and copied as they are, converted to float16 on the way to the
tensor cores, which is exact, and multiplied by x rounded to float16. What is beyond its range (only
in bfloat16) becomes +-65504. For a float32 model they are converted to float32.

E4M3 x is multiplied by FP8 weights as both are stored, and pairs of E4M3 by `pair_product.py`. The
tensor cores of Ada and Hopper add FP8 products with about 14 bits (SageAttention2,
arXiv 2411.10958; DeepSeek-V3, arXiv 2412.19437, 3.3.2), so the sum of each block, times the token's
scale, is added in float32. As a bare sum, Triton would add it inside the tensor cores on GPUs other
than Hopper.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import (
    INTERPRETED,
    as_float16,
    as_float32,
    in_word_order,
    saturated_float16,
    words_as_float16,
)
from decodescope.kernels.device.packed_batched import packed_gathered_products
from decodescope.kernels.device.packed_codes import PER_WORD
from decodescope.kernels.device.pair_product import pair_products

_LINE_BYTES = tl.constexpr(128)
# More makes a step slower (docs/decisions.md, 77).
_PREFETCHED_COLUMNS = tl.constexpr(256)


@triton.jit
def prefetch_rows(
    w_ptr,
    rows,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Prefetch the first columns of this program's part of each row into the L2 cache.

    Arguments as in `batched_products`. This uses the time before `wait_for_previous`, when the loop
    itself must not start yet. Without PDL there is no such time.
    """
    if PDL:
        LINE: tl.constexpr = _LINE_BYTES * 8 // w_ptr.dtype.element_ty.primitive_bitwidth
        STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
        ROW: tl.constexpr = LAYOUT[0]
        ELEMENT: tl.constexpr = 1 if LAYOUT[1] is None else PER_WORD
        lines = tl.arange(0, _PREFETCHED_COLUMNS // (LINE * ELEMENT))
        columns = split * (STEPS * BLOCK // ELEMENT) + lines * LINE
        pointers = w_ptr + rows[:, None] * ROW + tl.minimum(columns, ROW - 1)[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [pointers.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def batched_products(
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    split,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K,
    BLOCK,
    SPLITS,
    WORDS,
    LAYOUT: tl.constexpr,
    group_scales,
    num_stages: tl.constexpr,
):
    """`gathered_products` of the tokens x [BATCH, K], padded to TOKENS, or `pair_products`."""
    if x_ptr.dtype.element_ty == tl.uint16:
        sums = pair_products(
            w_ptr, rows, x_ptr, x_scale_ptr, split, BATCH, TOKENS, K, BLOCK, SPLITS
        )
    else:
        token = tl.arange(0, TOKENS)
        present = token < BATCH
        token = tl.minimum(token, BATCH - 1)
        sums = gathered_products(
            w_ptr,
            rows,
            x_ptr,
            x_scale_ptr,
            token,
            present,
            split,
            K,
            BLOCK,
            SPLITS,
            WORDS,
            LAYOUT,
            group_scales,
            num_stages,
        )
    return sums


@triton.jit
def gathered_products(
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    token,
    present,
    split,
    K,
    BLOCK,
    SPLITS,
    WORDS,
    LAYOUT: tl.constexpr,
    group_scales,
    num_stages: tl.constexpr,
):
    """sums[r, t] = sum over k of W[r, k] x[token[t], k] (float32), times x_scale[token[t]] if x is
    E4M3, and 0 where `present` is false. LAYOUT is that of `WeightMatrix`, also of 4 bits.

    rows [R] are row numbers from w_ptr on, all inside W, `token` row numbers of x, all inside x.
    `split` of SPLITS takes its part of k. With WORDS, W is loaded as words of four narrow elements.
    `group_scales` are `group_scale_places`.
    Call it after `wait_for_previous`.
    """
    if LAYOUT[1] is None:
        sums = _wide_gathered_products(
            w_ptr, rows, x_ptr, x_scale_ptr, token, present, split, K, BLOCK, SPLITS, WORDS
        )
    else:
        sums = packed_gathered_products(
            w_ptr,
            rows,
            x_ptr,
            token,
            present,
            split,
            K,
            BLOCK,
            SPLITS,
            LAYOUT,
            group_scales,
            num_stages,
        )
    return sums


@triton.jit
def _wide_gathered_products(
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    token,
    present,
    split,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    WORDS: tl.constexpr,
):
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    EVEN: tl.constexpr = K % BLOCK == 0
    stored: tl.constexpr = w_ptr.dtype.element_ty
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    FP8_X: tl.constexpr = dtype.primitive_bitwidth == 8
    NARROW: tl.constexpr = stored.primitive_bitwidth == 8 and not FP8_X and dtype != tl.float32
    # The interpreter's tl.dot reads bfloat16 as integers, and its casts to bfloat16 truncate.
    wide: tl.constexpr = tl.float32 if INTERPRETED and dtype == tl.bfloat16 else dtype
    operand: tl.constexpr = tl.float16 if NARROW else wide
    WORD: tl.constexpr = 4 if WORDS else 1
    lane = tl.arange(0, BLOCK)
    words = tl.arange(0, BLOCK // WORD)
    if WORDS:
        w_ptr = w_ptr.to(tl.pointer_type(tl.int32))
    w_rows = w_ptr + rows[:, None] * (K // WORD)
    x_rows = x_ptr + token[:, None] * K
    sums = tl.zeros((rows.shape[0], token.shape[0]), dtype=tl.float32)
    first = split * (STEPS * BLOCK)
    if x_scale_ptr is not None:
        x_scale = tl.load(x_scale_ptr + token, mask=present, other=0.0)
    present = present[:, None]
    for start in range(first, tl.minimum(first + STEPS * BLOCK, K), BLOCK):
        columns = start + lane
        w_columns = start // WORD + words
        if EVEN:
            w = tl.load(w_rows + w_columns[None, :], eviction_policy="evict_first")
            x = tl.load(x_rows + columns[None, :], mask=present, other=0.0)
        else:
            inside = (w_columns < K // WORD)[None, :]
            w = tl.load(
                w_rows + w_columns[None, :], mask=inside, other=0.0, eviction_policy="evict_first"
            )
            x = tl.load(x_rows + columns[None, :], mask=present & (columns < K)[None, :], other=0.0)
        if operand == tl.float16:
            x = x if x.dtype == tl.float16 else saturated_float16(x.to(tl.float32))
        if WORDS:
            w = words_as_float16(w, stored)
            x = in_word_order(x)
        elif operand == tl.float16:
            w = as_float16(w)
        elif not FP8_X:
            w = as_float32(w).to(operand)
            x = x.to(operand)
        if FP8_X:
            # Not by max_num_imprecise_acc: in a pipelined loop Triton then adds the sums of the
            # tensor cores before it has waited for them.
            sums += tl.dot(w, tl.trans(x)) * x_scale[None, :]
        elif operand == tl.float32:
            # One chain of thousands of additions would lose a decimal digit: each block is summed
            # separately. Without the limit the compiler would chain them again.
            sums += tl.dot(w, tl.trans(x), input_precision="ieee", max_num_imprecise_acc=BLOCK)
        else:
            sums = tl.dot(w, tl.trans(x), sums)
    return sums


@triton.jit
def split_pairs(sums):
    """The sums [R, tokens] of alternating rows as two tensors [R / 2, tokens]."""
    pairs = tl.reshape(sums, (sums.shape[0] // 2, 2, sums.shape[1]))
    return tl.split(tl.permute(pairs, (0, 2, 1)))
