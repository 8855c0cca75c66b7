"""The compiled variant: transformers with a static KV cache, torch.compile and its CUDA graphs."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.compiled.compilers import (
    Forward,
    TracedCompiler,
    compile_and_record,
    reduce_overhead,
)
from decodescope.variants.steps.step import CallSite, DecodeStep
from decodescope.variants.steps.transformers_step import TransformersStep

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
    step = StaticStep(loaded, workload, reduce_overhead)
    compile_and_record(step, workload)
    return step


class StaticStep(TransformersStep):
    """A `DecodeStep` on a KV cache of fixed size, whose forward pass `compile_forward` may compile.

    The cache holds exactly `workload.cache_length` positions: attention at a query of one token
    reads all of it, so spare room would slow every step down. Prefill runs uncompiled. The position
    is kept in device counters of the cache, so that one graph serves every position; rows after it
    are masked, then overwritten. `cache` is another step's cache, to be shared.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        compile_forward: Callable[[Forward], Forward],
        cache: Any | None = None,
    ) -> None:
        cache = cache or _static_cache(loaded.model.config, workload.cache_length)
        super().__init__(loaded, workload, cache)
        self._compiled = compile_forward(self._forward)

    def ungraphed(self) -> DecodeStep:
        """The same forward pass compiled without CUDA graphs, on this step's cache."""
        self._forget_tokens()
        return _TracedStep(self._loaded, self._workload, self._cache)

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self._rewind(0)
        return super()._prefill(ids)

    def _rewind(self, position: int) -> None:
        for layer in self._cache.layers:
            getattr(layer, _COUNTER).fill_(position)

    def _decode(self, ids: torch.Tensor) -> torch.Tensor:
        return self._compiled(ids, self._cache)


class _TracedStep(StaticStep):
    """`StaticStep` compiled without CUDA graphs; knows where its kernels come from."""

    def __init__(self, loaded: LoadedModel, workload: DecodeWorkload, cache: Any) -> None:
        self._compiler = TracedCompiler(range_paths(loaded.model))
        super().__init__(loaded, workload, self._compiler.compile, cache)

    def call_sites(self) -> tuple[CallSite, ...]:
        return self._compiler.sites


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
