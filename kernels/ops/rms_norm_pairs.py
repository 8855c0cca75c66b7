"""RMSNorm of activations as sums of two E4M3: n = (upper + lower / 16) scale, n = RMSNorm(x).

scale[b] is the power of two from max |n[b]| / 448 on. `upper` is n / scale rounded to nearest, and
`lower` 16 times what that leaves. Both have four significant bits, so their sum is off by 2^-8 of
its magnitude at most, as a number rounded to bfloat16 is, or by 2^-14 scale, which is 2^-21 of the
token's largest value. Products with FP8 weights take both parts as they are, on the FP8 tensor
cores (`device/pair_product.py`).

A row of codes holds `upper` of all features, then `lower`.

Bytes moved: x and the norm's weight once, two bytes for each feature, 4 for each scale. One program
holds one token in registers. In the launch of the product each program would have to find the scale
again from all of x.

Source: E4M3 of OCP 8-bit Floating Point Specification 1.0; PTX ISA, cvt; a number as the sum of two
of fewer digits as in Dekker, Numerische Mathematik 18 (1971).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import INTERPRETED, rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.weights import FP8_X, LEAST_SCALE, PAIR_X, Norm, largest_value
from decodescope.kernels.ops.rms_norm import normed, rms_norm_reference
from decodescope.kernels.ops.scaled_rows import ScaledRows

_LARGEST = tl.constexpr(largest_value(FP8_X))
_LEAST = tl.constexpr(LEAST_SCALE)
_MOST = tl.constexpr(torch.finfo(torch.float32).max)
# Adding it rounds a float32 below 2^13 to a multiple of 2^-9, the smallest E4M3, ties to even.
_TO_SUBNORMAL = tl.constexpr(1.5 * 2.0**14)
_LEAST_NORMAL = tl.constexpr(2.0**-6)
# `upper` and `lower` of four float32. PTX converts two at a time, the first operand upwards.
_PARTS = tl.constexpr(
    """{
    .reg .b16 low, high;
    .reg .b16 h<4>;
    .reg .b32 pair<2>;
    .reg .f32 f<4>;
    cvt.rn.satfinite.e4m3x2.f32 low, $3, $2;
    cvt.rn.satfinite.e4m3x2.f32 high, $5, $4;
    mov.b32 $0, {low, high};
    cvt.rn.f16x2.e4m3x2 pair0, low;
    cvt.rn.f16x2.e4m3x2 pair1, high;
    mov.b32 {h0, h1}, pair0;
    mov.b32 {h2, h3}, pair1;
    cvt.f32.f16 f0, h0;
    cvt.f32.f16 f1, h1;
    cvt.f32.f16 f2, h2;
    cvt.f32.f16 f3, h3;
    sub.f32 f0, $2, f0;
    sub.f32 f1, $3, f1;
    sub.f32 f2, $4, f2;
    sub.f32 f3, $5, f3;
    mul.f32 f0, f0, 0f41800000;
    mul.f32 f1, f1, 0f41800000;
    mul.f32 f2, f2, 0f41800000;
    mul.f32 f3, f3, 0f41800000;
    cvt.rn.satfinite.e4m3x2.f32 low, f1, f0;
    cvt.rn.satfinite.e4m3x2.f32 high, f3, f2;
    mov.b32 $1, {low, high};
    }"""
)


def rms_norm_pairs_reference(x: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    """n / scale [rows, features] and the scales [rows], in float64."""
    n = rms_norm_reference(x, norm)
    most = torch.finfo(torch.float32).max
    quotient = n.nan_to_num(nan=0.0).abs().amax(-1).clamp(max=most) / largest_value(FP8_X)
    scale = torch.exp2(torch.where(quotient < LEAST_SCALE, 1.0, quotient).log2().ceil())
    return n / scale[:, None], scale


@triton.jit
def _nearest_e4m3(n):
    """The number of E4M3 nearest to float32 n, |n| <= 448, ties to even."""
    bits = n.to(tl.uint32, bitcast=True)
    normal = (bits + 0x7FFFF + ((bits >> 20) & 1)) & 0xFFF00000
    subnormal = (n + _TO_SUBNORMAL) - _TO_SUBNORMAL
    nearest = tl.where(tl.abs(n) < _LEAST_NORMAL, subnormal, normal.to(tl.float32, bitcast=True))
    return tl.where(n != n, n, nearest)


@triton.jit
def _parts(n):
    """`upper` and `lower` of float32 n, |n| <= 448, as E4M3.

    Not by casts to E4M3 and back: of several elements a thread, Triton 3.6 was seen to give those
    of neighbours on compute capability 9.0."""
    if INTERPRETED:
        nearest = _nearest_e4m3(n)
        upper = rounded(nearest, tl.float8e4nv)
        lower = rounded((n - nearest) * 16, tl.float8e4nv)
    else:
        upper, lower = tl.inline_asm_elementwise(
            _PARTS,
            "=r,=r,f,f,f,f",
            [n],
            dtype=(tl.float8e4nv, tl.float8e4nv),
            is_pure=True,
            pack=4,
        )
    return upper, lower


@triton.jit
def _rms_norm_pairs_kernel(
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
    g = tl.load(g_ptr + column, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    n = normed(x, g, mask, features, eps, False)
    # NaN is a NaN code and leaves the scale to the others. An infinite value counts as the largest
    # float32, because a finite scale keeps zeros zero.
    n = tl.clamp(n, -_MOST, _MOST, propagate_nan=tl.PropagateNan.ALL)
    quotient = tl.div_rn(tl.max(tl.where(n != n, 0.0, tl.abs(n)), axis=0), _LARGEST)
    quotient = tl.where(quotient < _LEAST, 1.0, quotient)
    # The next power of two, and 1 / scale: exponents alone, so that n / scale is exact.
    bits = (quotient.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000
    n *= (0x7F000000 - bits).to(tl.float32, bitcast=True)
    upper, lower = _parts(n)
    out_ptr = out_ptr.to(tl.pointer_type(tl.float8e4nv)) + 2 * start
    tl.store(out_ptr + column, upper, mask=mask)
    tl.store(out_ptr + features + column, lower, mask=mask)
    tl.store(scale_ptr + token, bits.to(tl.float32, bitcast=True))


@dataclass(frozen=True, slots=True)
class RmsNormPairs(ScaledRows):
    """out[b] = n[b] / scale[b] as pairs of E4M3, n = RMSNorm(x) in float32.

    x [rows, features] of a dtype of the kernels, out uint16 likewise, scale float32 [rows], all
    contiguous. A row of zeros has scale 1. An infinite value becomes the largest pair, with the
    scale of the largest float32; NaN stays NaN and counts for no scale.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an output in x's memory; more than
            `rms_norm.MAX_FEATURES` features.
    """

    x: torch.Tensor
    norm: Norm
    out: torch.Tensor
    scale: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        return self.launched(_rms_norm_pairs_kernel, self.norm, PAIR_X, pdl)

    def reference(self, position: int) -> Tensors:
        return rms_norm_pairs_reference(self.x, self.norm)
