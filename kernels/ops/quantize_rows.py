"""E4M3 activations with one scale for each token: codes = n / scale, n = x or RMSNorm(x).

scale[b] = max |n[b]| / 448, so a token's largest value becomes the largest one of E4M3, and tokens
do not share a range. Products with E4M3 weights take both as they are (`host/product.py`).

Bytes moved: x and the norm's weight once, a byte for each code, 4 for each scale. One program holds
one token in registers, so x is read once, and a launch takes little more than its latency. In the
launch of the product each program would have to find the scale again from all of x.

Source: token-wise scales of activations as in ZeroQuant, Yao et al. (arXiv 2206.01861), here in
E4M3 of OCP 8-bit Floating Point Specification 1.0.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.weights import FP8_X, LEAST_SCALE, Norm, largest_value
from decodescope.kernels.ops.rms_norm import normed, rms_norm_reference
from decodescope.kernels.ops.scaled_rows import ScaledRows

_LARGEST = tl.constexpr(largest_value(FP8_X))
_LEAST_SCALE = tl.constexpr(LEAST_SCALE)
_MOST = tl.constexpr(torch.finfo(torch.float32).max)


def quantize_rows_reference(
    x: torch.Tensor, norm: Norm | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers whose nearest E4M3 elements are the codes [rows, features], and the scales
    [rows], in float64."""
    n = x.double() if norm is None else rms_norm_reference(x, norm)
    most, largest = torch.finfo(torch.float32).max, largest_value(FP8_X)
    scale = n.nan_to_num(nan=0.0).abs().amax(-1).clamp(max=most) / largest
    scale = torch.where(scale < LEAST_SCALE, 1.0, scale)
    return (n / scale[:, None]).clamp(-largest, largest), scale


@triton.jit
def _quotients(n, scale):
    """n / scale (float32), rounded to nearest, as weights are divided by theirs. n * (1 / scale)
    would be rounded twice, which decides ties of the codes by chance.

    The remainder corrects that product (Markstein, IBM J. Res. Dev. 34(1), 1990). This takes four
    instructions for each element; a division takes ten, one after the other, and a branch. A scale
    below 1e-33 has remainders too small for float32, and keeps the product.
    """
    if INTERPRETED:
        # Its fma rounds twice.
        return n / scale
    n = tl.clamp(n, -_MOST, _MOST, propagate_nan=tl.PropagateNan.ALL)
    inverse = 1.0 / scale
    product = n * inverse
    # With these signs, -0 stays -0; Triton's -n is 0 - n.
    excess = tl.fma(product, scale, n * -1.0)
    return tl.fma(excess, -inverse, product)


@triton.jit
def _quantize_rows_kernel(
    x_ptr,
    g_ptr,
    out_ptr,
    scale_ptr,
    features,
    eps,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    token = tl.program_id(0)
    start = token.to(tl.int64) * features
    column = tl.arange(0, BLOCK)
    mask = column < features
    if g_ptr is not None:
        g = tl.load(g_ptr + column, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    n = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    if g_ptr is not None:
        n = normed(n, g, mask, features, eps, False)
    # A NaN is a NaN code and leaves the scale to the others. An infinite value counts as the
    # largest float32, because a finite scale keeps zeros zero.
    magnitude = tl.where(n != n, 0.0, tl.minimum(tl.abs(n), _MOST))
    scale = tl.div_rn(tl.max(magnitude, axis=0), _LARGEST)
    scale = tl.where(scale < _LEAST_SCALE, 1.0, scale)
    codes = rounded(_quotients(n, tl.broadcast_to(scale, (BLOCK,))), out_ptr.dtype.element_ty)
    tl.store(out_ptr + start + column, codes, mask=mask)
    tl.store(scale_ptr + token, scale)


@dataclass(frozen=True, slots=True)
class QuantizeRows(ScaledRows):
    """scale[b] = max |n[b]| / 448, out[b] = n[b] / scale[b] in E4M3, n = RMSNorm(x), or x without a
    norm; n is float32, and its quotient is rounded once, to nearest, ties to even.

    x [rows, features] of a dtype of the kernels, out E4M3 likewise, scale float32 [rows], all
    contiguous. A row of zeros has scale 1. An infinite value becomes +-448 with the scale of the
    largest float32; NaN stays NaN and counts for no scale.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an output in x's memory; more than
            `rms_norm.MAX_FEATURES` features.
    """

    x: torch.Tensor
    norm: Norm | None
    out: torch.Tensor
    scale: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        return self.launched(_quantize_rows_kernel, self.norm, FP8_X, pdl)

    def reference(self, position: int) -> Tensors:
        return quantize_rows_reference(self.x, self.norm)
