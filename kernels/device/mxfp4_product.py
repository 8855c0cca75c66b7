"""y = W x for one vector x and rows of MXFP4 (`host/mxfp4.py`): `vector_product.py` for 4 bits.

The bits of a code, shifted to the lowest exponent bits and the highest bit of the fraction of a
bfloat16 or float32, are the code's value times 2^-126, subnormal ones too: for most codes one shift
and one mask for two, and no conversion. x times 2^63 keeps the products normal. The sum of each
block of 32 columns is scaled once.
"""

import triton
import triton.language as tl

# Their product undoes the 2^-126.
_HALF_SCALE = tl.constexpr(2.0**63)


@triton.jit
def _block(w_ptr, scale_ptr, rows, step, K: tl.constexpr, BLOCK: tl.constexpr):
    """The words [rows, BLOCK / 8] and scales [rows, BLOCK / 32] of a block of columns."""
    word = step * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    group = step * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
    words_ptr = (w_ptr + rows * (K // 8))[:, None] + word[None, :]
    scales_ptr = (scale_ptr + rows * (K // 32))[:, None] + group[None, :]
    if (step + 1) * BLOCK > K:
        inside = (word < K // 8)[None, :]
        words = tl.load(words_ptr, mask=inside, other=0, eviction_policy="evict_first")
        scales = tl.load(scales_ptr, mask=(group < K // 32)[None, :], other=0)
    else:
        words = tl.load(words_ptr, eviction_policy="evict_first")
        scales = tl.load(scales_ptr)
    return words, scales


@triton.jit
def code_pair(words, pair: tl.constexpr):
    """Codes 2 `pair` and 2 `pair` + 1 of uint32 words, each times 2^-126, as two bfloat16, the
    first in the lower half."""
    if pair < 3:
        bits = (words << (6 - 3 * pair)) & 0x81C081C0
    else:
        magnitudes = ((words >> 7) & 0x00400040) | ((words >> 3) & 0x01800180)
        bits = magnitudes | ((words << 1) & 0x80008000)
    return bits


@triton.jit
def code_value(words, place: tl.constexpr):
    """Code `place` of uint32 words times 2^-126 in float32."""
    pair = code_pair(words, place // 2)
    bits = pair & 0xFFFF0000 if place % 2 else pair << 16
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def mxfp4_blocks(w_ptr, scale_ptr, rows, K: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """The loads of `mxfp4_products` before the previous kernel has ended: its first AHEAD blocks.
    `rows` [R] are int64."""
    blocks = ()
    for step in tl.static_range(AHEAD):
        block = _block(w_ptr, scale_ptr, rows, step, K, BLOCK)
        blocks = blocks + (block,)  # type: ignore[assignment]  # noqa: RUF005
    return blocks


@triton.jit
def mxfp4_products(
    first,
    w_ptr,
    scale_ptr,
    rows,
    x_ptr,
    g_ptr,
    eps,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """sums[r] = sum over k of W[r, k] n[k] (float32), n = RMSNorm(x) with weight g and `eps`, or x
    if g_ptr is None. `first` is what `mxfp4_blocks` gave."""
    STEPS: tl.constexpr = (K + BLOCK - 1) // BLOCK
    ROWS: tl.constexpr = rows.shape[0]
    word = tl.arange(0, BLOCK // 8)
    first_column = word // 4 * 32 + word % 4
    squares = tl.zeros((BLOCK // 8,), tl.float32)
    total = tl.zeros((ROWS, BLOCK // 32), tl.float32)
    for step in tl.static_range(STEPS):
        block = first[step] if step < AHEAD else _block(w_ptr, scale_ptr, rows, step, K, BLOCK)
        words = block[0].to(tl.uint32, bitcast=True)
        products = tl.zeros((ROWS, BLOCK // 8), tl.float32)
        for place in tl.static_range(8):
            columns = step * BLOCK + first_column + 4 * place
            mask = columns < K if (step + 1) * BLOCK > K else None
            x = tl.load(x_ptr + columns, mask=mask).to(tl.float32)
            if mask is not None:
                x = tl.where(mask, x, 0.0)
            if g_ptr is not None:
                squares += x * x
                x *= tl.load(g_ptr + columns, mask=mask).to(tl.float32)
                if mask is not None:
                    x = tl.where(mask, x, 0.0)
            products += code_value(words, place) * (x * _HALF_SCALE)[None, :]
        sums = tl.sum(tl.reshape(products, (ROWS, BLOCK // 32, 4)), axis=2)
        # 2^(scale - 127); that of 0 is a subnormal number.
        bits = tl.maximum(block[1].to(tl.int32) << 23, 1 << 22)
        total += sums * _HALF_SCALE * bits.to(tl.float32, bitcast=True)
    result = tl.sum(total, axis=1)
    if g_ptr is not None:
        result *= tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
    return result
