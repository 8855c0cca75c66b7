"""Steps on the forward pass of transformers: the base class, and the eager variant."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from transformers import DynamicCache

from decodescope.analyzer.errors import InputError
from decodescope.variants.model.experts import multiplying_by_experts, step_way
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.decode_step import DecodeStep


class TransformersStep(DecodeStep):
    """Prefills and decodes on `cache`, one of transformers' KV caches. Subclasses rewind it.

    Some families have layers with recurrent states in place of K and V, which every token changes.
    Copies of those at the prompt's end are kept, so that a generation can begin again there. Of a
    mixture of experts, a step takes the fastest way of transformers, `_captured` or not.
    """

    _captured = False

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        cache: Any,
        ranges: LayerRanges | None = None,
    ) -> None:
        super().__init__(loaded, workload, ranges)
        self._cache = cache
        self._experts_way = step_way(loaded.model, workload.batch, self._captured)
        self._prompt_states: list[torch.Tensor] = []

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self._forward(ids, self._cache)
        self._prompt_states = [state.clone() for state in self._states()]
        return self._choose(logits[:, -1], ids.shape[1] - 1)

    @torch.no_grad()
    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        way = multiplying_by_experts(self._model, self._experts_way)
        with self._ranges.open("model"), way:
            logits = self._decode(ids[:, None])[:, -1]
        with self._ranges.open("sampling"):
            return self._choose(logits, self.position), logits

    def _states(self) -> list[torch.Tensor]:
        """The recurrent states of the cache; steps write into them."""
        held = [
            getattr(layer, name, None)
            for layer in self._cache.layers
            for name in ("conv_states", "recurrent_states")
        ]
        return [state for state in tree_leaves(held) if isinstance(state, torch.Tensor)]

    def _rewind_states(self, position: int) -> None:
        if position == self.position:
            return
        states = self._states()
        if states and position != self._workload.context:
            raise self._passed(position, "recurrent state")
        for state, kept in zip(states, self._prompt_states, strict=True):
            state.copy_(kept)

    def _passed(self, position: int, what: str) -> InputError:
        return InputError(
            f"reset to position {position}: the model's {what} has passed it; "
            f"only the prompt's end, {self._workload.context}, can be decoded again"
        )

    def _decode(self, ids: torch.Tensor) -> torch.Tensor:
        return self._forward(ids, self._cache)

    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits
        return logits


def keeps_kv(layer: Any) -> bool:
    """Whether a layer of a cache keeps K and V: not recurrent states, and not nothing, as one that
    reads the K and V of an earlier layer."""
    return hasattr(layer, "is_sliding")


class EagerStep(TransformersStep):
    """A `DecodeStep` on the unmodified model with a cache that grows by one position a step.

    Cache layers that keep only a sliding window have lost the oldest positions once it is full.
    Their rows at the prompt's end are kept (growing makes new tensors, so this copies nothing), and
    going back to the prompt's end restores them. Without such layers nothing is kept.
    """

    def __init__(self, loaded: LoadedModel, workload: DecodeWorkload) -> None:
        cache = DynamicCache(config=loaded.model.config)
        super().__init__(loaded, workload, cache, LayerRanges(loaded.model))
        self._prompt_rows: list[tuple[torch.Tensor, torch.Tensor]] = []

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self._cache = DynamicCache(config=self._model.config)
        first = super()._prefill(ids)
        layers = self._attention_layers()
        slides = any(layer.is_sliding for layer in layers)
        self._prompt_rows = [(layer.keys, layer.values) for layer in layers] if slides else []
        return first

    def _attention_layers(self) -> list[Any]:
        return [layer for layer in self._cache.layers if keeps_kv(layer)]

    def _rewind(self, position: int) -> None:
        self._rewind_states(position)
        layers = self._attention_layers()
        # A layer's tensors start at position 0, or nothing has to be cut from them.
        if all(layer.get_seq_length() in (position, layer.keys.shape[-2]) for layer in layers):
            for layer in layers:
                keys, values = layer.keys[:, :, :position], layer.values[:, :, :position]
                _restore(layer, keys, values, position)
            return
        if position != self._workload.context:
            raise self._passed(position, "sliding window")
        for layer, (keys, values) in zip(layers, self._prompt_rows, strict=True):
            _restore(layer, keys, values, position)


def _restore(layer: Any, keys: torch.Tensor, values: torch.Tensor, position: int) -> None:
    layer.keys, layer.values = keys, values
    if layer.is_sliding:
        layer.cumulative_length = position
