"""residual += x, out = RMSNorm(residual): one launch instead of two. Or only the norm of the sum,
or only the sum. With norms after the parts of a layer, x is normed before it is added. The sum may
be multiplied by a factor.

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
from decodescope.kernels.host.product import norm_arguments
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import (
    check_norm_weight,
    normed,
    rms_norm_reference,
    row_warps,
)


def rms_norm_residual_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Norm | None,
    added_norm: Norm | None = None,
    factor: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual (rounded to its dtype) and the norm of it in float64 (without a norm the
    residual itself). x [rows, features]."""
    added = x.double() if added_norm is None else rms_norm_reference(x, added_norm)
    total = residual.double() + added
    total = (total if factor is None else total * factor.double()).to(residual.dtype)
    return total, total if norm is None else rms_norm_reference(total, norm)


@triton.jit
def _rms_norm_residual_kernel(
    x_ptr,
    residual_ptr,
    added_weight_ptr,
    weight_ptr,
    out_ptr,
    factor_ptr,
    features,
    added_eps,
    eps,
    BLOCK: tl.constexpr,
    CENTERED: tl.constexpr,
    KEPT: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    start = tl.program_id(0).to(tl.int64) * features
    column = tl.arange(0, BLOCK)
    mask = column < features
    if added_weight_ptr is not None:
        added_weight = tl.load(added_weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    if out_ptr is not None:
        weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    if factor_ptr is not None:
        factor = tl.load(factor_ptr).to(tl.float32)
    wait_for_previous(PDL)
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    if added_weight_ptr is not None:
        x = normed(x, added_weight, mask, features, added_eps, False)
    total = residual + x
    if factor_ptr is not None:
        total *= factor
    total = total.to(residual_ptr.dtype.element_ty)
    if KEPT:
        tl.store(residual_ptr + start + column, total, mask=mask)
    if out_ptr is not None:
        # The norm of the rounded sum, as if a second kernel had read it back.
        out = normed(total.to(tl.float32), weight, mask, features, eps, CENTERED)
        tl.store(out_ptr + start + column, rounded(out, out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class RmsNormResidual(KernelOperation):
    """residual += x in place, rounded to its dtype; then out = RMSNorm(residual) as in `RmsNorm`,
    unless both `norm` and `out` are None. With `added_norm`, RMSNorm(x) in float32 is added. The
    residual is the sum times `factor` [1] if there is one.

    x, residual, out [rows, features], contiguous; x and residual of one dtype, out of one that
    `check_output` allows. out may be x, never the residual.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out is the residual; more than
            `rms_norm.MAX_FEATURES` features; a norm without out; a centered `added_norm`.
    """

    x: torch.Tensor
    residual: torch.Tensor
    norm: Norm | None
    out: torch.Tensor | None  # type: ignore[assignment]
    added_norm: Norm | None = None
    factor: torch.Tensor | None = None

    def launch(self, pdl: bool = False) -> Launch:
        x, residual, norm, out = self.x, self.residual, self.norm, self.out
        if x.dim() != 2:
            raise ValueError(f"x {list(x.shape)}: must be [rows, features]")
        rows, features = int(x.shape[0]), int(x.shape[1])
        check_floats("x", x, (rows, features), x.device)
        check_tensor("residual", residual, (rows, features), x.dtype, x.device)
        if (norm is None) != (out is None):
            raise ValueError("norm and out: must be both given, or both None")
        if out is not None:
            check_output("out", out, (rows, features), x)
            if out.data_ptr() == residual.data_ptr():
                raise ValueError("out is the residual: both results need a tensor of their own")
        check_norm_weight(norm, features, x.device)
        check_norm_weight(self.added_norm, features, x.device)
        if self.factor is not None:
            check_floats("factor", self.factor, (1,), x.device)
        added_weight, added_eps = norm_arguments(self.added_norm)
        block = triton.next_power_of_2(features)
        return launch(
            _rms_norm_residual_kernel,
            (rows,),
            x,
            residual,
            added_weight,
            None if norm is None else norm.weight,
            out,
            self.factor,
            features,
            added_eps,
            0.0 if norm is None else norm.eps,
            BLOCK=block,
            CENTERED=norm is not None and norm.centered,
            KEPT=bool(self.updated),
            PDL=pdl,
            num_warps=row_warps(block),
        )

    def outputs(self, position: int) -> Tensors:
        return () if self.out is None else (self.out,)

    @property
    def updated(self) -> Tensors:
        return (self.residual,)

    def reference(self, position: int) -> Tensors:
        total, normed = rms_norm_residual_reference(
            self.x, self.residual, self.norm, self.added_norm, self.factor
        )
        return (total,) if self.out is None else (normed, total)
