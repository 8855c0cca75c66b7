"""The KV cache of fused steps: one fixed tensor each for K and V, filled by transformers' prefill.

Every layer keeps every position, also with a sliding window: the kernel reads only the window.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from decodescope.variants.steps.fused.model_parts import FusedModel


@dataclass(frozen=True, slots=True)
class KvCache:
    """`k` (rotated) and `v`: [layers, batch, KV heads, capacity, head_dim] in the model's dtype."""

    k: torch.Tensor
    v: torch.Tensor

    @property
    def capacity(self) -> int:
        """Positions it can hold."""
        return int(self.k.shape[3])

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one layer, [batch, KV heads, capacity, head_dim] each."""
        return self.k[index], self.v[index]

    def fill(self, past: Any, length: int) -> None:
        """Copy positions 0 to `length` - 1 from the `DynamicCache` of a prefill of that length.

        A layer with a sliding window holds only the last of them. Only those are copied, to their
        own positions; no step can see the others.

        Raises:
            ValueError: another number of layers, sequences, heads or tokens, or more than fit.
        """
        if length > self.capacity:
            raise ValueError(f"{length} tokens: this cache has {self.capacity} positions")
        if len(past.layers) != self.k.shape[0]:
            raise ValueError(f"{len(past.layers)} layers: this cache has {self.k.shape[0]}")
        for index, layer in enumerate(past.layers):
            if layer.get_seq_length() != length:
                raise ValueError(f"layer {index} has seen {layer.get_seq_length()}, not {length}")
            _copy_last(layer.keys, self.k[index, :, :, :length])
            _copy_last(layer.values, self.v[index, :, :, :length])


def _copy_last(held: torch.Tensor, rows: torch.Tensor) -> None:
    """Copy the last tokens, which `held` [batch, KV heads, tokens, head_dim] holds, into `rows`."""
    last = rows[:, :, rows.shape[2] - held.shape[2] :]
    # copy_ would repeat one sequence for all.
    if last.shape != held.shape:
        raise ValueError(f"K or V of shape {list(held.shape)}: must be {list(last.shape)}")
    last.copy_(held)


def new_kv_cache(
    parts: FusedModel, batch: int, capacity: int, device: torch.device | str
) -> KvCache:
    """An empty cache for `batch` sequences of up to `capacity` tokens, in the weights' dtype."""
    shape = (len(parts.layers), batch, parts.kv_heads, capacity, parts.head_dim)
    dtype = parts.dtype
    return KvCache(
        torch.zeros(shape, dtype=dtype, device=device),
        torch.zeros(shape, dtype=dtype, device=device),
    )


@torch.no_grad()
def prefill(model: Any, ids: torch.Tensor, cache: KvCache) -> torch.Tensor:
    """Run the prompt `ids` int64 [batch, length] through the transformers model, as it is.

    Fills `cache` up to `length`; returns the logits [batch, vocabulary] that follow the prompt.
    """
    past = DynamicCache(config=model.config)
    output = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
    cache.fill(past, ids.shape[1])
    logits: torch.Tensor = output.logits
    return logits[:, -1]
