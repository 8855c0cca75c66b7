"""out = x / sqrt(mean(x^2) + eps) * weight over the last dimension: RMSNorm in one launch.

transformers launches six or more kernels for it (convert, square, mean, add, rsqrt, two products).
Here one program holds one row in registers: x is read once and out written once, in total
rows * features * 2 * itemsize bytes, and the weight.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization (arXiv 1910.07467).
"""

import torch
import triton
import triton.language as tl


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The formula in float64. x [..., features], weight [features]."""
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


@triton.jit
def _fast_rms_norm_kernel(x_ptr, weight_ptr, out_ptr, features, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * features
    column = tl.arange(0, BLOCK)
    mask = column < features
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    out = x * tl.rsqrt(tl.sum(x * x, axis=0) / features + eps) * weight
    tl.store(out_ptr + start + column, out.to(out_ptr.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`rms_norm_reference` in the dtype of x: computed in float32, rounded once.

    Raises:
        ValueError: the weight is not [features], or on another device.
    """
    features = x.shape[-1]
    if tuple(weight.shape) != (features,) or weight.device != x.device:
        raise ValueError(
            f"weight {list(weight.shape)} on {weight.device}: must be [{features}] on {x.device}"
        )
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    block = triton.next_power_of_2(features)
    # 16 bytes of bf16 a thread.
    warps = min(max(block // 256, 1), 16)
    grid = (x.numel() // features,)
    _fast_rms_norm_kernel[grid](x, weight, out, features, eps, BLOCK=block, num_warps=warps)
    return out
