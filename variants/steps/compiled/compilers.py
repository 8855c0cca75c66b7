"""The two ways the forward pass is compiled, to be replayed as CUDA graphs or traced without, and
the steps that make a function compile."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.compiled.inductor_origins import call_sites, source_nodes
from decodescope.variants.steps.step import CallSite, DecodeStep

Forward = Callable[[torch.Tensor, Any], torch.Tensor]

_WARM_UP_STEPS = 3


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
    its graphs. The step must be given a prompt before it goes on."""
    step.prefill(torch.zeros((workload.batch, workload.context), dtype=torch.int64))
    with without_tf32_advice():
        for _ in range(_WARM_UP_STEPS):
            step.step()
            step.reset(workload.context)


class TracedCompiler:
    """Compiles forward passes as `torch.compile` does by default, and keeps where kernels are from.

    `paths` gives the range path of the model's modules by their name. `sites` are the kernel calls
    of what has been compiled, in their order; compiling happens at a function's first call.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths
        self.sites: tuple[CallSite, ...] = ()

    def compile(self, forward: Forward) -> Forward:
        """`forward` compiled; what was compiled of `forward` elsewhere stays as it is."""

        def traced(ids: torch.Tensor, cache: Any) -> torch.Tensor:
            return forward(ids, cache)

        # Dynamo keeps compiled code by code object: with its own, this function is compiled again.
        traced.__code__ = traced.__code__.replace()
        return torch.compile(traced, backend=self._backend, fullgraph=True, dynamic=False)

    def _backend(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        nodes = source_nodes(graph.graph, self._paths)

        def compile_kept(*args: Any, **options: Any) -> Any:
            compiled = compile_fx_inner(*args, **options)
            self.sites += call_sites(getattr(compiled, "source_code", ""), nodes)
            return compiled

        # Cached code would name the nodes of the graph it was generated from.
        with config.patch(fx_graph_cache=False), without_tf32_advice():
            return compile_fx(graph, inputs, inner_compile=compile_kept)


@contextmanager
def without_tf32_advice() -> Iterator[None]:
    """Silence the compiler's advice to compute fp32 in TF32, which would change the results that
    are compared."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        yield
