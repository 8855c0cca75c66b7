"""Y = X W^T for up to 64 tokens of pairs of E4M3 (`ops/rms_norm_pairs.py`) and FP8 weights.

As `batched_product.py`, but no operand is converted or passes through registers: both go from
shared memory to the FP8 tensor cores as they are stored. The upper and lower parts of x are the
columns of one product, twice as many as there are tokens. Each product of 32 columns truncates the
sum so far to about 14 bits (`batched_product.py`), so the sum of each block, times the token's
scale, is added in float32.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, as_float32


@triton.jit
def pair_products(
    w_ptr,
    rows,
    x_ptr,
    x_scale_ptr,
    split,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """As `batched_products`, of uint16 x."""
    STEPS: tl.constexpr = (K + SPLITS * BLOCK - 1) // (SPLITS * BLOCK)
    EVEN: tl.constexpr = K % BLOCK == 0
    column = tl.arange(0, 2 * TOKENS)
    present = column % TOKENS < BATCH
    token = tl.minimum(column % TOKENS, BATCH - 1)
    part = column // TOKENS
    factor = tl.load(x_scale_ptr + token, mask=present, other=0.0)
    factor *= tl.where(part == 0, 1.0, 1.0 / 16)
    lane = tl.arange(0, BLOCK)
    w_rows = w_ptr + rows[:, None] * K
    x_rows = x_ptr.to(tl.pointer_type(tl.float8e4nv)) + ((2 * token + part) * K)[:, None]
    sums = tl.zeros((rows.shape[0], 2 * TOKENS), tl.float32)
    first = split * (STEPS * BLOCK)
    for start in range(first, tl.minimum(first + STEPS * BLOCK, K), BLOCK):
        columns = (lane + start)[None, :]
        if EVEN:
            w = tl.load(w_rows + columns, eviction_policy="evict_first")
            x = tl.load(x_rows + columns, mask=present[:, None], other=0.0)
        else:
            inside = columns < K
            w = tl.load(w_rows + columns, mask=inside, other=0.0, eviction_policy="evict_first")
            x = tl.load(x_rows + columns, mask=present[:, None] & inside, other=0.0)
        if INTERPRETED:
            # Its tl.dot has no NaN of FP8.
            w, x = as_float32(w), as_float32(x)
        # Multiplied, so that the compiler does not begin a block with the sums of those before it.
        sums += tl.dot(w, tl.trans(x)) * factor[None, :]
    parts = tl.reshape(sums, (sums.shape[0], 2, TOKENS))
    upper, lower = tl.split(tl.permute(parts, (0, 2, 1)))
    return upper + lower
