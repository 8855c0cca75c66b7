"""One RMSNorm for all heads of Q, or of K, of which each rank has some."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class RMSNormOverRanks(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, with the mean over the heads of all `ranks`; x [...,
    features] and the weight are those of this rank's heads. In float32, rounded once.

    Ranks have equally many heads, and each head is on equally many ranks: the mean over all heads,
    each counted once, is that of the ranks' means. Transformers knows by the class's name that the
    weight begins as 1.
    """

    def __init__(self, norm: Any, ranks: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = norm.weight
        self.variance_epsilon = float(norm.variance_epsilon)
        self._ranks = ranks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = x.float()
        mean = values.square().mean(-1, keepdim=True) / self._ranks
        dist.all_reduce(mean)
        normed = values * torch.rsqrt(mean + self.variance_epsilon)
        return (self.weight * normed).to(x.dtype)
