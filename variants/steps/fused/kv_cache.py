"""The KV cache of fused steps: one fixed tensor each for K and V, filled by transformers' prefill.

Every layer keeps every position, also with a sliding window: the kernel reads only the window.

A float8 cache is filled layer by layer, while the prefill runs, so that K and V are never whole in
the model's dtype. E4M3 has a scale for each layer, sequence and KV head, K and V apart: the power
of two that brings the largest magnitude of the prompt to 112 up to 224, so that later tokens may be
two to four times as large before they saturate at 448. A floating-point format loses no precision
by that, and a power of two changes no digit. E5M2 has the range of float16 and no scales.
Infinities are stored as the format's largest value, and NaN as NaN; neither counts for the scale. A
head of zeros has scale 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from decodescope.kernels.host.kv_cache import KvScales, codes
from decodescope.kernels.host.weights import NARROW_DTYPES, largest_value
from decodescope.variants.spec import KvFormat
from decodescope.variants.steps.fused.blocks import FusedModel

_MARGIN = 2.0
# 1 / scale must be a normal float32.
_MOST_EXPONENT = 126


@dataclass(frozen=True, slots=True)
class KvCache:
    """`k` (rotated) and `v` of each layer: [batch, KV heads, capacity, head_dim] in the model's
    dtype or in float8, the same for layers that share them; `all_scales` float32 [batch, KV heads]
    each, none without scales."""

    k: tuple[torch.Tensor, ...]
    v: tuple[torch.Tensor, ...]
    all_scales: tuple[KvScales, ...] = ()

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one layer, [batch, KV heads, capacity, head_dim] each."""
        return self.k[index], self.v[index]

    def scales(self, index: int) -> KvScales | None:
        return self.all_scales[index] if self.all_scales else None

    def fill(self, index: int, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        """Store positions up to `length` - 1 of one layer from what a prefill of that length holds:
        `keys` and `values` [batch, KV heads, tokens, head_dim].

        A layer with a sliding window holds only the last of them. Only those are stored, at their
        own positions; no step can see the others.

        Raises:
            ValueError: numbers of sequences, heads or tokens that do not fit.
        """
        scales_of = self.scales(index) or (None, None)
        for held, stored, scales in zip((keys, values), self.layer(index), scales_of, strict=True):
            last = stored[:, :, max(0, length - held.shape[2]) : length]
            # copy_ would repeat one sequence for all.
            if last.shape != held.shape:
                raise ValueError(f"K or V of shape {list(held.shape)}: must be {list(last.shape)}")
            if last.dtype == held.dtype:
                last.copy_(held)
            else:
                _store_narrow(held, last, scales)


def _store_narrow(held: torch.Tensor, stored: torch.Tensor, scales: torch.Tensor | None) -> None:
    """Store rows in float8, one sequence at a time, and their scales [batch, KV heads]."""
    for sequence in range(held.shape[0]):
        sequence_row = slice(sequence, sequence + 1)
        rows, scale = held[sequence_row].float(), None
        if scales is not None:
            scale = _head_scales(rows, largest_value(stored.dtype))
            scales[sequence_row] = scale
        stored[sequence_row] = codes(rows, stored.dtype, scale).to(stored.dtype)


def _head_scales(rows: torch.Tensor, largest: float) -> torch.Tensor:
    """A power of two for each head of float32 `rows` [batch, heads, tokens, head_dim]: the head's
    largest finite magnitude / scale is in [largest / 4, largest / 2); 1 of a head of zeros."""
    magnitudes = rows.abs().nan_to_num_(nan=0.0, posinf=0.0).amax(dim=(2, 3)).double()
    _, exponents = torch.frexp(magnitudes * (_MARGIN / largest))
    exponents = exponents.clamp(-_MOST_EXPONENT, _MOST_EXPONENT)
    scales = torch.ldexp(torch.ones_like(magnitudes), exponents)
    return torch.where(magnitudes == 0, 1.0, scales).float()


def new_kv_cache(
    parts: FusedModel, batch: int, capacity: int, format: KvFormat | None = None
) -> KvCache:
    """An empty cache in `format`; None: the model's dtype."""
    dtype = parts.dtype if format is None else NARROW_DTYPES[format]
    rows: list[torch.Tensor] = []
    scales: list[KvScales] = []
    for layer in parts.layers:
        if layer.kv_from is None:
            shape = (2, batch, layer.kv_heads, capacity, layer.head_dim)
            rows.append(torch.zeros(shape, dtype=dtype, device=parts.device))
            scales.append(KvScales(*torch.ones(shape[:3], device=parts.device)))
        else:
            rows.append(rows[layer.kv_from])
            scales.append(scales[layer.kv_from])
    k, v = (tuple(each[index] for each in rows) for index in range(2))
    return KvCache(k, v, tuple(scales) if format == "fp8_e4m3" else ())


class _Filling(DynamicCache):  # type: ignore[misc]
    """Passes each layer of a prefill on to a `KvCache` when it is complete, and forgets it."""

    def __init__(self, config: Any, cache: KvCache, length: int) -> None:
        super().__init__(config=config)
        self._cache = cache
        self._length = length
        self.filled: list[int] = []

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *rest: Any,
        **more: Any,
    ) -> Any:
        """K and V that the layer's attention sees."""
        seen = super().update(key_states, value_states, layer_idx, *rest, **more)
        layer = self.layers[layer_idx]
        self._cache.fill(layer_idx, layer.keys, layer.values, self._length)
        layer.keys, layer.values = (held.new_empty(0) for held in (layer.keys, layer.values))
        self.filled.append(layer_idx)
        return seen


@torch.no_grad()
def prefill(model: Any, ids: torch.Tensor, cache: KvCache) -> torch.Tensor:
    """Run the prompt `ids` int64 [batch, length] through the transformers model, as it is.

    Fills `cache` up to `length`; returns the logits [batch, vocabulary] that follow the prompt.

    Raises:
        ValueError: the model and the cache do not have the same layers, or as `KvCache.fill`.
    """
    past = _Filling(model.config, cache, ids.shape[1])
    output = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
    layers = len({one.data_ptr() for one in cache.k})
    if past.filled != list(range(layers)):
        raise ValueError(f"{len(past.filled)} layers: this cache has {layers}")
    logits: torch.Tensor = output.logits
    return logits[:, -1]
