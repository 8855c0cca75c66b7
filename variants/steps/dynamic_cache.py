"""A growing KV cache that can go back to an earlier length."""

from typing import Any

import torch
from transformers import DynamicCache

from decodescope.analyzer.errors import InputError


class RewindableCache:
    """transformers' `DynamicCache` (as `cache`), cut back by `rewind`.

    Layers that keep only a sliding window have lost the oldest positions once it is full. What they
    held when `mark` was called is kept (growing makes new tensors, so this copies nothing), and
    `rewind` to that length restores it. Without such layers nothing is kept.
    """

    def __init__(self, config: Any) -> None:
        self.cache = DynamicCache(config=config)
        self._marked_at = -1
        self._marked: list[tuple[torch.Tensor, torch.Tensor]] = []

    def mark(self, position: int) -> None:
        """Keep the present state, at cache length `position`, for `rewind`."""
        self._marked_at = position
        if any(layer.is_sliding for layer in self.cache.layers):
            self._marked = [(layer.keys, layer.values) for layer in self.cache.layers]

    def rewind(self, position: int) -> None:
        """Cut the cache to `position` tokens.

        Raises:
            InputError: a sliding window has dropped positions that decoding there would need.
        """
        layers = self.cache.layers
        if any(not _still_holds(layer, position) for layer in layers):
            if position != self._marked_at:
                raise InputError(
                    f"reset to position {position}: the model's sliding window has passed it; "
                    f"only the prompt's end, {self._marked_at}, can be decoded again"
                )
            for layer, (keys, values) in zip(layers, self._marked, strict=True):
                _restore(layer, keys, values, position)
            return
        for layer in layers:
            _restore(layer, layer.keys[:, :, :position], layer.values[:, :, :position], position)


def _still_holds(layer: Any, position: int) -> bool:
    """Whether the layer's tensors start at position 0, or nothing is to be cut."""
    length: int = layer.get_seq_length()
    held: int = layer.keys.shape[-2]
    return length in (position, held)


def _restore(layer: Any, keys: torch.Tensor, values: torch.Tensor, position: int) -> None:
    layer.keys, layer.values = keys, values
    if layer.is_sliding:
        layer.cumulative_length = position
