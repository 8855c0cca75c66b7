"""The compiled variant: transformers with a static KV cache, torch.compile and its CUDA graphs.

The forward pass is compiled in two ways: with CUDA graphs for the step, and without them to trace
each kernel to its source, which names the ops of the replays.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

from decodescope.analyzer.errors import MissingRequirement, ModelError, first_line
from decodescope.variants.machine.memory import is_out_of_memory
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.rotations import RotationTables
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.decode_step import CallSite, DecodeStep
from decodescope.variants.steps.eager_step import TransformersStep, keeps_kv
from decodescope.variants.steps.inductor_origins import call_sites, source_nodes

Forward = Callable[[torch.Tensor, Any], torch.Tensor]

_COUNTER = "cumulative_length"
_WARM_UP_STEPS = 3


def build_compiled(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> "StaticStep":
    """The compiled step, with compilation and graph recording done.

    Raises:
        MissingRequirement: `device` is not "cuda".
        ModelError: torch.compile cannot capture the model.
    """
    if device != "cuda":
        raise MissingRequirement("variant compiled: CUDA graphs need a CUDA device")
    # Code compiled by an earlier build would count against the limit of recompilations.
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

    _captured = True

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        compile_forward: Callable[[Forward], Forward],
        cache: Any | None = None,
    ) -> None:
        cache = cache or _static_cache(loaded.model.config, workload.cache_length)
        super().__init__(loaded, workload, cache)
        self._rotations = RotationTables(loaded.model, workload.cache_length)
        self._compiled = compile_forward(self._forward)

    def ungraphed(self) -> DecodeStep:
        """The same forward pass compiled without CUDA graphs, on this step's cache."""
        # The cache is shared, so this step needs a prompt again.
        self._ids = []
        self.position = self._workload.context
        return _TracedStep(self._loaded, self._workload, self._cache)

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self._rewind(0)
        return super()._prefill(ids)

    def _rewind(self, position: int) -> None:
        if position:
            self._rewind_states(position)
        for layer in self._cache.layers:
            if keeps_kv(layer):
                getattr(layer, _COUNTER).fill_(position)
            elif not position:
                layer.reset()

    def _decode(self, ids: torch.Tensor) -> torch.Tensor:
        with self._rotations.used():
            return self._compiled(ids, self._cache)


class _TracedStep(StaticStep):
    """`StaticStep` compiled as `torch.compile` does by default, without CUDA graphs.

    Keeps the kernel calls of what has been compiled, in their order; compiling happens at a
    function's first call.
    """

    def __init__(self, loaded: LoadedModel, workload: DecodeWorkload, cache: Any) -> None:
        self._sites: tuple[CallSite, ...] = ()
        super().__init__(loaded, workload, self._traced, cache)

    def call_sites(self) -> tuple[CallSite, ...]:
        return self._sites

    def _traced(self, forward: Forward) -> Forward:
        """`forward` compiled; what was compiled of `forward` elsewhere stays as it is."""

        def traced(ids: torch.Tensor, cache: Any) -> torch.Tensor:
            return forward(ids, cache)

        # Dynamo keeps compiled code by code object: with its own, this function is compiled again.
        traced.__code__ = traced.__code__.replace()
        return torch.compile(traced, backend=self._backend, fullgraph=True, dynamic=False)

    def _backend(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        nodes = source_nodes(graph.graph, range_paths(self._model))

        def compile_kept(*args: Any, **options: Any) -> Any:
            compiled = compile_fx_inner(*args, **options)
            self._sites += call_sites(getattr(compiled, "source_code", ""), nodes)
            return compiled

        # Cached code would name the nodes of the graph it was generated from.
        with config.patch(fx_graph_cache=False), without_tf32_advice():
            return compile_fx(graph, inputs, inner_compile=compile_kept)


def _static_cache(config: Any, length: int) -> Any:
    """A cache of `length` positions in which every layer counts on the device only.

    transformers' sliding-window layers also count in a Python int, which changes with every step
    and would make torch.compile specialise on it. A full layer gives the same attention, because
    the window is in the mask as well; it is as small, as long as `length` is within the window.
    """
    cache = StaticCache(config=config, max_cache_len=length)
    cache.layers = [
        StaticLayer(max_cache_len=length) if keeps_kv(layer) else layer for layer in cache.layers
    ]
    static = [layer for layer in cache.layers if isinstance(layer, StaticLayer)]
    if not all(hasattr(layer, _COUNTER) for layer in static):
        raise MissingRequirement(
            "variant compiled: needs transformers 5.5 or later, whose static cache counts its "
            "positions on the device; upgrade it with: pip install -U transformers"
        )
    return cache


def reduce_overhead(forward: Forward) -> Forward:
    """`forward` compiled with torch.compile's own CUDA graphs (its mode "reduce-overhead")."""
    compiled = torch.compile(forward, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def replay(ids: torch.Tensor, cache: Any) -> torch.Tensor:
        # Marks the logits of the last step as no longer needed.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return compiled(ids, cache)

    return replay


def compile_and_record(step: DecodeStep, workload: DecodeWorkload) -> None:
    """Decode a few meaningless tokens: the first calls of a compiled function compile it and record
    its graphs. The step must be given a prompt before it goes on.

    Raises:
        ModelError: torch.compile cannot capture the model.
    """
    from torch._dynamo.exc import TorchDynamoException

    step.prefill(torch.zeros((workload.batch, workload.context), dtype=torch.int64))
    try:
        with without_tf32_advice():
            for _ in range(_WARM_UP_STEPS):
                step.step()
                step.reset(workload.context)
    except TorchDynamoException as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            "variant compiled: torch.compile cannot capture this model "
            f"({first_line(error)}); choose another variant"
        ) from error


@contextmanager
def without_tf32_advice() -> Iterator[None]:
    """Silence the advice to compute fp32 in TF32, which would change results that are compared."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        yield
