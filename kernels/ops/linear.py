"""out = W n + bias, n = x or RMSNorm(x): a plain product with nothing fused after it.

Bytes moved: W and bias once, x and the norm's weight once, out once.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product, vector_product
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import group_scale_places, program_rows, scale_and_bias
from decodescope.kernels.host.checks import check_apart, check_floats
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.product import NormedProduct
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.rms_norm import rms_norm_reference


def linear_reference(
    x: torch.Tensor, weight: WeightMatrix, norm: Norm | None = None
) -> torch.Tensor:
    """n W^T + bias in float64, n = RMSNorm(x), or x where `norm` is None. x [batch, columns]."""
    n = x.double() if norm is None else rms_norm_reference(x, norm)
    product = n @ weight.dense().T
    return product if weight.bias is None else product + weight.bias.double()


@triton.jit
def _linear_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    w_ptr, inside, rows = program_rows(w_ptr, tl.program_id(0), N, LAYOUT[0], ROWS)
    mask = rows < N
    first = vector_product.first_blocks(w_ptr, inside, g_ptr, 0, K, BLOCK, 1, AHEAD, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, mask)
    wait_for_previous(PDL)
    sums = vector_product.vector_products(
        first, w_ptr, inside, x_ptr, x_scale_ptr, g_ptr, eps, 0, K, BLOCK, 1, AHEAD, LAYOUT
    )
    sums = sums * scale + bias
    tl.store(out_ptr + rows, sums.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _linear_batched_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    out_ptr,
    eps,
    N: tl.constexpr,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    w_ptr, inside, rows = program_rows(w_ptr, tl.program_id(0), N, LAYOUT[0], ROWS)
    batched_product.prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL, LAYOUT)
    mask = (rows < N)[:, None]
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], mask)
    group_scales = group_scale_places(group_scale_ptr, rows, LAYOUT)
    wait_for_previous(PDL)
    sums = batched_product.batched_products(
        w_ptr,
        inside,
        x_ptr,
        x_scale_ptr,
        0,
        BATCH,
        TOKENS,
        K,
        BLOCK,
        1,
        WORDS,
        LAYOUT,
        group_scales,
        num_stages,
    )
    sums = sums * scale + bias
    token = tl.arange(0, TOKENS)
    tl.store(
        out_ptr + token[None, :] * N + rows[:, None],
        sums.to(out_ptr.dtype.element_ty),
        mask=mask & (token < BATCH)[None, :],
    )


@dataclass(frozen=True, slots=True)
class Linear(NormedProduct):
    """out[b, n] = sum over k of W[n, k] n[b, k] + bias[n], n = RMSNorm(x), or x without a norm.

    x [batch, columns], out [batch, rows], contiguous; batch 1..64; or x E4M3 with `x_scale` and FP8
    weights (`Product`). Sums are float32 and rounded once;
    the norm's factor is applied to the sum.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out in x's memory; a tile of more than
            one split, or for a batch a tile below 16 x 16.
    """

    x: torch.Tensor
    weight: WeightMatrix
    out: torch.Tensor
    tile: Tile
    norm: Norm | None = None
    x_scale: torch.Tensor | None = None

    def launch(self, pdl: bool = False) -> Launch:
        weight, out = self.weight, self.out
        batch = self.checked_batch(weight)
        check_floats("out", out, (batch, weight.rows), self.x.device)
        check_apart("out", out, self.x)
        kernels = _linear_kernel, _linear_batched_kernel
        programs = triton.cdiv(weight.rows, self.tile.rows)
        return self.launched(kernels, programs, weight, (out,), (), pdl, N=weight.rows)

    def reference(self, position: int) -> Tensors:
        return (linear_reference(self.values, self.weight, self.norm),)
