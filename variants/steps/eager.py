"""The eager variant: transformers as people run it, one launch per operator."""

import torch

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.dynamic_cache import RewindableCache
from decodescope.variants.steps.history import TokenHistory
from decodescope.variants.steps.step_bytes import KvBytes, weight_bytes_read
from decodescope.variants.steps.token_choice import token_choice


class EagerStep:
    """A `DecodeStep` on the unmodified model with a cache that grows by one position a step."""

    def __init__(self, loaded: LoadedModel, workload: DecodeWorkload) -> None:
        self._model = loaded.model
        self._history = TokenHistory(workload)
        self._choose = token_choice(workload, loaded.model.device)
        self._ranges = LayerRanges(loaded.model)
        self._cache = RewindableCache(loaded.model.config)
        self._kv_bytes = KvBytes(loaded.model.config, workload.batch, loaded.model.dtype.itemsize)
        self.position = workload.context
        self.weight_bytes_read = weight_bytes_read(loaded.model, workload.batch)

    @torch.no_grad()
    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Fill a new cache from prompt `ids` [batch, context]; returns the first new ids."""
        self._history.check_prompt(ids)
        self._cache = RewindableCache(self._model.config)
        logits = self._logits(ids.to(self._model.device))
        self._cache.mark(ids.shape[1])
        first = self._history.start(self._choose(logits[:, -1], ids.shape[1] - 1))
        self.position = self._history.position
        return first

    def step(self) -> torch.Tensor:
        """Decode one token for every sequence; returns the next ids [batch]."""
        return self._advance()[0]

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        """Decode the given `ids` [batch] as `step` does; returns the logits [batch, vocabulary]."""
        self._history.force(ids.to(self._model.device, copy=True))
        return self._advance()[1]

    def reset(self, position: int) -> None:
        """Rewind the cache and the tokens to `position`."""
        self._history.check_rewind(position)
        self._cache.rewind(position)
        self._history.rewind(position)
        self.position = position

    def kv_bytes_read(self, position: int) -> int:
        """Bytes of K and V that a step at cache length `position` must read."""
        return self._kv_bytes.at(position)

    def annotate_layers(self, enabled: bool) -> None:
        """Open ranges around the model, its layers and their parts during steps, or stop it."""
        self._ranges.set(enabled)

    def ungraphed(self) -> None:
        """None: nothing is replayed."""

    @torch.no_grad()
    def _advance(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the last ids; the next ids [batch] and the logits [batch, vocabulary]."""
        last = self._history.last()
        with self._ranges.open("model"):
            logits = self._logits(last[:, None])[:, -1]
        with self._ranges.open("sampling"):
            ids = self._history.append(self._choose(logits, self._history.position))
        self.position = self._history.position
        return ids, logits

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        output = self._model(
            input_ids=ids, past_key_values=self._cache.cache, use_cache=True, logits_to_keep=1
        )
        logits: torch.Tensor = output.logits
        return logits
