"""Y = X W^T for up to 64 tokens and rows of MXFP4 (`host/mxfp4.py`), on the tensor cores.

As `batched_product.py`, for 4 bits. Words are copied to shared memory as they are. A word and the
scale of its block become eight elements of the model's dtype in the register that the word arrives
in. bfloat16 holds them exactly, if the scale is 27 to 160 (weights of 1e-30 to 5e10): a smaller
scale loses digits, a larger one makes infinities. float16 holds those of its range.

The eight elements are those that a thread of the tensor cores takes of two times 16 columns, if x
has its columns in the same order. The sum over the columns does not change.

`tl.dot_scaled` is for GPUs that multiply FP4. On others Triton makes it a product in bfloat16 too.

Source: PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", and those of mma.m16n8k16.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED
from decodescope.kernels.device.mxfp4_product import code_pair, code_value

# The bits of a code are its value times 2^-126 (`mxfp4_product.py`). bfloat16 does not hold 2^126
# times a scale above 2: factors leave 2^32 out, by which sums are multiplied.
_LEFT_OUT = tl.constexpr(2.0**32)
_FACTOR_EXPONENT = tl.constexpr(126 - 32)
_WHOLE = tl.constexpr(2.0**126)
_MULTIPLIED = tl.constexpr(
    """{
    .reg .b32 product, no_sum;
    mov.b32 no_sum, 0x80008000;
    fma.rn.bf16x2 product, $2, $3, no_sum;
    mov.b32 {$0, $1}, product;
    }"""
)


@triton.jit
def mxfp4_gathered_products(
    w_ptr,
    scale_ptr,
    rows,
    x_ptr,
    token,
    present,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """sums[r, t] = sum over k of W[r, k] x[token[t], k] (float32), and 0 where `present` is false.

    rows [R] are row numbers from w_ptr and scale_ptr on, all inside W, `token` row numbers of x,
    all inside x. Call it after `wait_for_previous`.
    """
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    # The interpreter's tl.dot reads bfloat16 as integers.
    operand: tl.constexpr = tl.float32 if INTERPRETED and dtype == tl.bfloat16 else dtype
    lane, word, group = tl.arange(0, BLOCK), tl.arange(0, BLOCK // 8), tl.arange(0, BLOCK // 32)
    w_rows = w_ptr + rows[:, None] * (K // 8)
    scale_rows = scale_ptr + rows[:, None] * (K // 32)
    x_rows = x_ptr + token[:, None] * K
    present = present[:, None]
    sums = tl.zeros((rows.shape[0], token.shape[0]), tl.float32)
    scales = _block_scales(scale_rows, group, K // 32)
    for start in range(0, K, BLOCK):
        words, columns = start // 8 + word, start + lane
        inside, here = None, present
        if K % BLOCK != 0:
            inside, here = (words < K // 8)[None, :], present & (columns < K)[None, :]
        codes = tl.load(w_rows + words[None, :], mask=inside, eviction_policy="evict_first")
        x = tl.load(x_rows + columns[None, :], mask=here, other=0.0)
        later = _block_scales(scale_rows, (start + BLOCK) // 32 + group, K // 32)
        w = _weights(codes, scales, operand)
        x = tl.trans(_in_word_order(x.to(operand)))
        if operand == tl.float32:
            # As in `gathered_products`.
            sums += tl.dot(w, x, input_precision="ieee", max_num_imprecise_acc=BLOCK)
        else:
            sums = tl.dot(w, x, sums)
        scales = later
    return sums * _LEFT_OUT if operand == tl.bfloat16 else sums


@triton.jit
def _block_scales(scale_rows, groups, GROUPS: tl.constexpr):
    return tl.load(scale_rows + groups[None, :], mask=(groups < GROUPS)[None, :], other=0)


@triton.jit
def _in_word_order(x):
    """x [tokens, columns] with its columns in the order that `_weights` gives them."""
    tokens: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    eights = tl.reshape(x, (tokens, columns // 8, 2, 4))
    return tl.reshape(tl.permute(eights, (0, 1, 3, 2)), (tokens, columns))


@triton.jit
def _weights(codes, scales, dtype: tl.constexpr):
    """The weights [rows, columns] of words [rows, columns / 8] and scales [rows, columns / 32]."""
    rows: tl.constexpr = codes.shape[0]
    blocks: tl.constexpr = scales.shape[1]
    exponents = scales.to(tl.int32)
    if dtype == tl.bfloat16:
        factors = tl.minimum(exponents + _FACTOR_EXPONENT, 255) * 0x00800080
    else:
        # 2^(scale - 127); that of 0 is a subnormal number.
        factors = tl.maximum(exponents << 23, 1 << 22)
    factors = tl.broadcast_to(factors[:, :, None], (rows, blocks, 4))
    factors = tl.reshape(factors, (rows, 4 * blocks))
    words = codes.to(tl.uint32, bitcast=True)
    w0, w1 = _pair(words, 0, factors, dtype)
    w2, w3 = _pair(words, 1, factors, dtype)
    w4, w5 = _pair(words, 2, factors, dtype)
    w6, w7 = _pair(words, 3, factors, dtype)
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odd = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    # Of code 4 a + 2 b + c of word t: [rows, blocks, t, a, b, c].
    eights = tl.reshape(tl.join(even, odd), (rows, blocks, 4, 2, 2, 2))
    return tl.reshape(tl.permute(eights, (0, 1, 3, 4, 2, 5)), (rows, 32 * blocks))


@triton.jit
def _pair(words, pair: tl.constexpr, factors, dtype: tl.constexpr):
    """Codes 2 `pair` and 2 `pair` + 1 times the factors."""
    if dtype == tl.bfloat16:
        first, second = tl.inline_asm_elementwise(
            _MULTIPLIED,
            "=h,=h,r,r",
            [code_pair(words, pair), factors],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=1,
        )
    else:
        factors = factors.to(tl.float32, bitcast=True)
        first = (code_value(words, 2 * pair) * _WHOLE * factors).to(dtype)
        second = (code_value(words, 2 * pair + 1) * _WHOLE * factors).to(dtype)
    return first, second
