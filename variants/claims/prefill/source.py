"""The publication, and how its baselines and peers become entrants.

Shares of the peak there are of the A100's datasheet, by counts of bytes that are partly larger than
what moves; rows say which count they are by.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch

from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.claims.entrants import keeping_results
from decodescope.variants.claims.racing import Entrant, Tensors
from decodescope.variants.claims.report import Source

SOURCE = Source(
    "From 11 % to 88 % Peak Bandwidth: Writing Custom Triton Kernels for LLM Inference "
    "(Subhadip Mitra, 2025; figures of github.com/bassrehab/triton-kernels)",
    "https://subhadipmitra.com/blog/2025/triton-kernels-llm-inference",
    "A100-SXM4-40GB",
)
TOKENS = 2048
HIDDEN = 4096
FFN = 11008
SEED = 0
# The baseline, Liger-Kernel, and PyTorch moving the same bytes without computing.
PYTORCH, LIGER, STREAM = "pytorch", "liger_kernel", "same_bytes"
# float16 results, rounded once or twice.
TOLERANCE = 1e-3

AnyOperation = TypeVar("AnyOperation", bound=KernelOperation)


def generator() -> torch.Generator:
    """Draws operands where claims are measured: on the GPU, in tests on the CPU."""
    return torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(SEED)


def drawn(draw: torch.Generator, *shape: int) -> torch.Tensor:
    """Normal float16 numbers."""
    return torch.empty(shape, dtype=torch.float16, device=draw.device).normal_(generator=draw)


def peer(
    name: str,
    what: str,
    way: Callable[[AnyOperation], Tensors],
    operations: Sequence[AnyOperation],
    reference: Callable[[], Tensors] | None = None,
) -> Entrant:
    """Another way to do what `operations` do, one for each copy of the operands: `way` computes
    their results from their fields. `reference`, if it computes something else."""
    calls = [partial(way, one) for one in operations]
    first = operations[0]
    expected = reference or (lambda: first.reference(0))
    return Entrant(name, what, keeping_results(calls), calls[0], expected, TOLERANCE)


def liger(module: str, function: str) -> Callable[..., Any]:
    """An autograd function of Liger-Kernel, which is imported when it is first called."""

    def apply(*arguments: object) -> Any:
        return getattr(import_module(f"liger_kernel.ops.{module}"), function).apply(*arguments)

    return apply
