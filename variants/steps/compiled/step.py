"""The compiled variant: transformers with a static KV cache, torch.compile and its CUDA graphs."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import LayerRanges, range_paths
from decodescope.variants.steps.compiled.traced_compiler import (
    Forward,
    TracedCompiler,
    without_tf32_advice,
)
from decodescope.variants.steps.history import TokenHistory
from decodescope.variants.steps.step import UngraphedStep
from decodescope.variants.steps.step_bytes import KvBytes, weight_bytes_read
from decodescope.variants.steps.token_choice import token_choice

_WARM_UP_STEPS = 3
_COUNTER = "cumulative_length"


def build_compiled(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> "StaticStep":
    """The compiled step, with compilation and graph recording done.

    Raises:
        MissingRequirement: `device` is not "cuda".
    """
    if device != "cuda":
        raise MissingRequirement("variant compiled: CUDA graphs need a CUDA device")
    # What an earlier build compiled would count against the limit of recompilations.
    torch.compiler.reset()
    step = StaticStep(loaded, workload, _reduce_overhead)
    step.warm_up()
    return step


class StaticStep:
    """A `DecodeStep` on a KV cache of fixed size, whose forward pass `compile_forward` may compile.

    The cache holds exactly `workload.cache_length` positions: attention at a query of one token
    reads all of it, so spare room would slow every step down. Prefill runs uncompiled; the position
    lives in device counters of the cache, so that one graph serves every position. `cache` is that
    of another step, to be shared.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        compile_forward: Callable[[Forward], Forward],
        cache: Any | None = None,
    ) -> None:
        self._loaded = loaded
        self._model = loaded.model
        self._workload = workload
        self._history = TokenHistory(workload)
        self._choose = token_choice(workload, loaded.model.device)
        self._ranges = LayerRanges(None)
        self._cache = cache or _static_cache(loaded.model.config, workload.cache_length)
        self._decode = compile_forward(self._forward)
        self._kv_bytes = KvBytes(loaded.model.config, workload.batch, loaded.model.dtype.itemsize)
        self.position = workload.context
        self.weight_bytes_read = weight_bytes_read(loaded.model, workload.batch)

    def warm_up(self) -> None:
        """Compile and record: the first calls of a compiled function do both."""
        shape = (self._workload.batch, self._workload.context)
        self.prefill(torch.zeros(shape, dtype=torch.int64))
        with without_tf32_advice():
            for _ in range(_WARM_UP_STEPS):
                self.step()
                self.reset(self._workload.context)

    def ungraphed(self) -> UngraphedStep:
        """The same forward compiled without CUDA graphs, on this step's cache."""
        compiler = TracedCompiler(range_paths(self._model))
        step = StaticStep(self._loaded, self._workload, compiler.compile, self._cache)
        self._history = TokenHistory(self._workload)
        self.position = self._history.position
        return UngraphedStep(step, lambda: compiler.sites)

    @torch.no_grad()
    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Fill the cache from prompt `ids` [batch, context]; returns the first new ids."""
        self._history.check_prompt(ids)
        self._move_to(0)
        logits = self._forward(ids.to(self._model.device), self._cache)
        first = self._history.start(self._choose(logits[:, -1], ids.shape[1] - 1))
        self.position = self._history.position
        return first

    def step(self) -> torch.Tensor:
        """Decode one token for every sequence; returns the next ids [batch]."""
        return self._advance()[0]

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        """Decode the given `ids` [batch] as `step` does; returns the logits [batch, vocabulary]."""
        self._history.force(ids.to(self._model.device, copy=True))
        # A graph's output buffer is reused by the next replay.
        return self._advance()[1].clone()

    def reset(self, position: int) -> None:
        """Set the cache's counters back; positions after `position` are masked, then overwritten.

        Raises:
            InputError: a position that was not reached since the prompt.
        """
        self._history.check_rewind(position)
        self._move_to(position)
        self._history.rewind(position)
        self.position = position

    def kv_bytes_read(self, position: int) -> int:
        """Bytes of K and V that a step at cache length `position` must read."""
        return self._kv_bytes.at(position)

    def annotate_layers(self, enabled: bool) -> None:
        """Open ranges around model and sampling; inside a replayed graph there is no host code."""
        self._ranges.set(enabled)

    @torch.no_grad()
    def _advance(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the last ids; the next ids [batch] and the logits [batch, vocabulary]."""
        last = self._history.last()
        with self._ranges.open("model"):
            logits = self._decode(last[:, None], self._cache)[:, -1]
        with self._ranges.open("sampling"):
            ids = self._history.append(self._choose(logits, self._history.position))
        self.position = self._history.position
        return ids, logits

    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits
        return logits

    def _move_to(self, position: int) -> None:
        for layer in self._cache.layers:
            getattr(layer, _COUNTER).fill_(position)


def _static_cache(config: Any, length: int) -> Any:
    """A cache of `length` positions in which every layer counts on the device only.

    transformers' sliding-window layers also count in a Python int, which changes with every step
    and would make torch.compile specialise on it. A full layer gives the same attention, because
    the window is in the mask as well; it is as small, as long as `length` is within the window.
    """
    cache = StaticCache(config=config, max_cache_len=length)
    cache.layers = [StaticLayer(max_cache_len=length) for _ in cache.layers]
    if not all(hasattr(layer, _COUNTER) for layer in cache.layers):
        raise MissingRequirement(
            "variant compiled: needs transformers 5.5 or later, whose static cache counts its "
            "positions on the device; upgrade it with: pip install -U transformers"
        )
    return cache


def _reduce_overhead(forward: Forward) -> Forward:
    compiled = torch.compile(forward, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def replay(ids: torch.Tensor, cache: Any) -> torch.Tensor:
        # Says that the logits of the step before are no longer needed.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return compiled(ids, cache)

    return replay
