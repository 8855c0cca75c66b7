"""The PyTorch sequences that kernl compared its kernels with, written from their description.

They rotate neighbouring elements of a head, as Meta's checkpoints do; our kernels pair element i
with i + D/2, as Hugging Face's do. `paired` and `halved` convert between both orders.
"""

import torch

from benchmarks.claims.racing import Tensors

PYTORCH = "PyTorch fp16"
# pow, mean, add, rsqrt and two products.
NORM_ROUNDINGS = 6


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm in the dtype of x, float16: every step is rounded to it."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def gated(
    x: torch.Tensor, weight: torch.Tensor, eps: float, gate: torch.Tensor, up: torch.Tensor
) -> torch.Tensor:
    """silu(gate n) * (up n) of n = RMSNorm(x)."""
    normed = rms_norm(x, weight, eps)
    activated = torch.nn.functional.silu(torch.matmul(normed, gate.t()))
    return activated * torch.matmul(normed, up.t())


def rotate_complex(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Heads of x [tokens, heads, D] times `turns`, complex64 [tokens, D / 2]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2).type_as(x)


def rotate_real(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The same in real arithmetic; cos and sin float32 [tokens, D / 2]."""
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None].to(torch.float32), sin[:, None].to(torch.float32)
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(turned, dim=-1).flatten(-2).type_as(x)


def paired(x: torch.Tensor) -> torch.Tensor:
    """The last dimension with element i + D/2 moved next to element i."""
    return torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)


def paired_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """A projection [heads * D, columns] whose results have the order of `paired` in each head."""
    by_head = weight.view(heads, -1, weight.shape[1]).transpose(1, 2)
    return paired(by_head).transpose(1, 2).reshape(weight.shape)


def halved(results: Tensors) -> Tensors:
    """The inverse of `paired`, of each tensor."""
    return tuple(torch.cat((one[..., 0::2], one[..., 1::2]), dim=-1) for one in results)
