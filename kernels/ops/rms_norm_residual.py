"""residual += x, out = RMSNorm(residual): one launch instead of two. Or only the norm of the sum.

Bytes moved: x read, the residual read and written, out written, the weight: rows * features * 4 *
itemsize + the weight's bytes; 3 * itemsize where the sum is not written. Two launches would read
the sum again.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_floats, check_output, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import (
    check_norm_weight,
    normed,
    rms_norm_reference,
    row_warps,
)


def rms_norm_residual_reference(
    x: torch.Tensor, residual: torch.Tensor, norm: Norm
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual (rounded to its dtype) and the norm of it in float64. x [rows, features]."""
    total = (residual.double() + x.double()).to(residual.dtype)
    return total, rms_norm_reference(total, norm)


@triton.jit
def _rms_norm_residual_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    features,
    eps,
    BLOCK: tl.constexpr,
    KEPT: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    start = tl.program_id(0).to(tl.int64) * features
    column = tl.arange(0, BLOCK)
    mask = column < features
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    total = (residual + x).to(residual_ptr.dtype.element_ty)
    if KEPT:
        tl.store(residual_ptr + start + column, total, mask=mask)
    # The norm of the rounded sum, as if a second kernel had read it back.
    out = normed(total.to(tl.float32), weight, features, eps)
    tl.store(out_ptr + start + column, rounded(out, out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class RmsNormResidual(KernelOperation):
    """residual += x in place, rounded to its dtype; then out = RMSNorm(residual) as in `RmsNorm`.

    x, residual, out [rows, features], contiguous; x and residual of one dtype, out of one that
    `check_output` allows. out may be x, never the residual.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out is the residual; more than
            `rms_norm.MAX_FEATURES` features.
    """

    x: torch.Tensor
    residual: torch.Tensor
    norm: Norm
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        x, residual, norm, out = self.x, self.residual, self.norm, self.out
        if x.dim() != 2:
            raise ValueError(f"x {list(x.shape)}: must be [rows, features]")
        rows, features = int(x.shape[0]), int(x.shape[1])
        check_floats("x", x, (rows, features), x.device)
        check_tensor("residual", residual, (rows, features), x.dtype, x.device)
        check_output("out", out, (rows, features), x)
        if out.data_ptr() == residual.data_ptr():
            raise ValueError("out is the residual: both results need a tensor of their own")
        check_norm_weight(norm, features, x.device)
        block = triton.next_power_of_2(features)
        return launch(
            _rms_norm_residual_kernel,
            (rows,),
            x,
            residual,
            norm.weight,
            out,
            features,
            norm.eps,
            BLOCK=block,
            KEPT=bool(self.updated),
            PDL=pdl,
            num_warps=row_warps(block),
        )

    @property
    def updated(self) -> Tensors:
        return (self.residual,)

    def reference(self, position: int) -> Tensors:
        total, normed = rms_norm_residual_reference(self.x, self.residual, self.norm)
        return normed, total
