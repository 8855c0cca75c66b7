"""torch.compile without CUDA graphs, which remembers where its kernels come from."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from decodescope.variants.steps.compiled.inductor_origins import CallSite, call_sites, source_nodes

Forward = Callable[[torch.Tensor, Any], torch.Tensor]


class TracedCompiler:
    """Compiles forward passes as `torch.compile` does by default.

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

        # Dynamo keeps compiled code by code object: one of its own is compiled anew.
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
    """Keep back the compiler's advice to compute fp32 in TF32, which would change what is
    compared."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        yield
