"""out = x / sqrt(mean(x^2) + eps) * weight: RMSNorm of hidden states, or of heads (QK-norm).

A centered norm subtracts the mean of x first: LayerNorm without a bias.

Bytes moved: x read, out written, the weight: rows * features * 2 * itemsize + the weight's bytes.
One program holds one row in registers, so x is read once.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization (arXiv 1910.07467).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_floats, check_norm, check_output
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.weights import Norm

MAX_FEATURES = 65536


def rms_norm_reference(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float64. x [..., features]."""
    x = x.double()
    if norm.centered:
        x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps) * norm.weight.double()


@triton.jit
def normed(x, weight, mask, features, eps, CENTERED: tl.constexpr):
    """RMSNorm of a row x [block] (float32, zero outside the mask) with `weight`."""
    if CENTERED:
        x = tl.where(mask, x - tl.sum(x, axis=0) / features, 0.0)
    mean_square = tl.sum(x * x, axis=0) / features
    return x * tl.rsqrt(mean_square + eps) * weight


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    features,
    eps,
    x_group_stride,
    x_row_stride,
    out_group_stride,
    out_row_stride,
    BLOCK: tl.constexpr,
    CENTERED: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < features
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    x_ptr += group * x_group_stride + row * x_row_stride
    out_ptr += group * out_group_stride + row * out_row_stride
    x = tl.load(x_ptr + column, mask=mask, other=0.0).to(tl.float32)
    out = normed(x, weight, mask, features, eps, CENTERED)
    tl.store(out_ptr + column, rounded(out, out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class RmsNorm(KernelOperation):
    """out = x / sqrt(mean(x^2) + eps) * weight, row by row; computed in float32 and rounded once.

    x and out [rows, features] or [batch, heads, features], of dtypes that `check_output` allows;
    all dimensions but the last may be strided. out may be x itself: a row is read before it is
    written.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; more than `MAX_FEATURES` features.
    """

    x: torch.Tensor
    norm: Norm
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        x, norm, out = self.x, self.norm, self.out
        if x.dim() not in (2, 3):
            raise ValueError(
                f"x {list(x.shape)}: must be [rows, features] or [batch, heads, features]"
            )
        check_floats("x", x, tuple(x.shape), x.device, strided=True)
        check_output("out", out, tuple(x.shape), x, strided=True)
        features = int(x.shape[-1])
        check_norm_weight(norm, features, x.device)
        batched = x.dim() == 3
        block = triton.next_power_of_2(features)
        return launch(
            _rms_norm_kernel,
            (x.shape[-2], x.shape[0] if batched else 1),
            x,
            norm.weight,
            out,
            features,
            norm.eps,
            x.stride(0) if batched else 0,
            x.stride(-2),
            out.stride(0) if batched else 0,
            out.stride(-2),
            BLOCK=block,
            CENTERED=norm.centered,
            PDL=pdl,
            num_warps=row_warps(block),
        )

    def reference(self, position: int) -> Tensors:
        return (rms_norm_reference(self.x, self.norm),)


def check_norm_weight(norm: Norm | None, features: int, device: torch.device) -> None:
    """Raise `ValueError` unless one program holds a row of `features`, or as `check_norm`."""
    if not 1 <= features <= MAX_FEATURES:
        raise ValueError(f"{features} features: must be 1 to {MAX_FEATURES}")
    check_norm(norm, features, device)


def row_warps(block: int) -> int:
    """Warps for a row of `block` elements: 16 bytes of bf16 a thread, up to 16 warps."""
    return min(max(block // 256, 1), 16)
