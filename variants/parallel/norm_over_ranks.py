"""One RMSNorm for all heads of Q, and one for all of K, of which each rank has some.

Ranks have equally many heads, and each head is on equally many ranks: the mean over all heads, each
counted once, is that of the ranks' means.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from decodescope.kernels.host.weights import QkNorm


def normed_over_ranks(
    rows: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], eps: float, ranks: int
) -> list[torch.Tensor]:
    """Each of `rows` [..., features] as x / sqrt(mean(x^2) + eps) * weight, with the mean over the
    heads of all `ranks`; rows and weights are those of this rank's heads. In float32, rounded once;
    one all-reduce."""
    values = [one.float() for one in rows]
    means = torch.cat([one.square().mean(-1, keepdim=True) for one in values], dim=-1) / ranks
    dist.all_reduce(means)
    factors = torch.split(torch.rsqrt(means + eps), 1, dim=-1)
    return [
        (one * factor * weight).to(row.dtype)
        for row, one, factor, weight in zip(rows, values, factors, weights, strict=True)
    ]


def norm_qk_over_ranks(q: torch.Tensor, k: torch.Tensor, norm: QkNorm, ranks: int) -> None:
    """As the kernel of `AllReduceQkNorm`, by torch.distributed."""
    rows, weights = (q, k), (norm.q_weight, norm.k_weight)
    for out, normed in zip(rows, normed_over_ranks(rows, weights, norm.eps, ranks), strict=True):
        out.copy_(normed)


class RMSNormOverRanks(nn.Module):
    """The norm of Q or of K of transformers' `norm`, whose weight is already this rank's part.

    Transformers knows by the class's name that the weight begins as 1."""

    def __init__(self, norm: Any, ranks: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = norm.weight
        self.variance_epsilon = float(norm.variance_epsilon)
        self._ranks = ranks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return normed_over_ranks((x,), (self.weight,), self.variance_epsilon, self._ranks)[0]
