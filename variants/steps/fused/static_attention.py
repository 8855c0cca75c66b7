"""Attention as PyTorch does it on a static cache: what stands in for our kernel when left out.

Which rows a query sees is a mask made on the device, so a captured graph serves every position; in
return every step reads the whole cache.
"""

from collections.abc import Iterable

import torch
from torch.nn.functional import scaled_dot_product_attention


class VisibleRows:
    """Which rows of the cache are seen, bool [1, 1, 1, capacity], for each window of the model."""

    def __init__(
        self, windows: Iterable[int | None], capacity: int, device: torch.device | str
    ) -> None:
        self._rows = torch.arange(capacity, dtype=torch.int32, device=device)
        self._masks = {
            window: torch.zeros(capacity, dtype=torch.bool, device=device) for window in windows
        }

    def update(self, position: torch.Tensor) -> None:
        """Set the masks for a query at `position` int32 [1], whose own row is in the cache."""
        for window, mask in self._masks.items():
            torch.le(self._rows, position, out=mask)
            if window is not None:
                mask &= self._rows > position - window

    def of(self, window: int | None) -> torch.Tensor:
        """The mask of layers with this window."""
        return self._masks[window][None, None, None]


def static_attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """softmax(scale q K^T) V over the rows that `mask` shows, [batch, heads * head_dim].

    q [batch, heads, head_dim], caches [batch, KV heads, capacity, head_dim].
    """
    out = scaled_dot_product_attention(
        q[:, :, None],
        k_cache,
        v_cache,
        attn_mask=mask,
        scale=scale,
        enable_gqa=q.shape[1] != k_cache.shape[1],
    )
    return out.reshape(q.shape[0], -1)
