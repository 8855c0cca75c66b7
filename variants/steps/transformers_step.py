"""A decode step whose logits come from the transformers model's own forward pass."""

from typing import Any

import torch

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.step import DecodeStep


class TransformersStep(DecodeStep):
    """Prefills and decodes on `cache`, one of transformers' KV caches. Subclasses rewind it."""

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        cache: Any,
        ranges: LayerRanges | None = None,
    ) -> None:
        super().__init__(loaded, workload, ranges)
        self._cache = cache

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self._forward(ids, self._cache)
        return self._choose(logits[:, -1], ids.shape[1] - 1)

    @torch.no_grad()
    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        with self._ranges.open("model"):
            logits = self._decode(ids[:, None])[:, -1]
        with self._ranges.open("sampling"):
            return self._choose(logits, self.position), logits

    def _decode(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits [batch, 1, vocabulary] of one token a sequence, `ids` [batch, 1]."""
        return self._forward(ids, self._cache)

    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits
        return logits
