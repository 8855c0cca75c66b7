"""The publication, and what its claims share: operands, baselines and peers, rows.

Shares of the peak there are of the A100's datasheet, by counts of bytes that are partly larger than
what moves; rows say which count they are by.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch
from msgspec.structs import replace

from benchmarks.claims.claim import Setup
from benchmarks.claims.entrants import keeping_results, pytorch
from benchmarks.claims.racing import Entrant, Tensors
from benchmarks.claims.report import EntrantFigures, Race, Row, Source
from benchmarks.claims.rows import share_of_peak, speed_up
from decodescope.kernels.host.operation import KernelOperation

SOURCE = Source(
    "From 11 % to 88 % Peak Bandwidth: Writing Custom Triton Kernels for LLM Inference "
    "(Subhadip Mitra, 2025; figures of github.com/bassrehab/triton-kernels)",
    "https://subhadipmitra.com/blog/2025/triton-kernels-llm-inference",
    "A100-SXM4-40GB",
    "Mitra",
)
TOKENS = 2048
HIDDEN = 4096
FFN = 11008
SEED = 0
# The baseline, Liger-Kernel, and PyTorch moving the same bytes without computing.
PYTORCH, LIGER, STREAM = "pytorch", "liger_kernel", "same_bytes"
ITEM_BYTES = 2
# float16 results, rounded once or twice.
TOLERANCE = 1e-3
# PyTorch's: what is normalised, or silu(gate), and its product.
_ROUNDINGS = 2

AnyOperation = TypeVar("AnyOperation", bound=KernelOperation)


def generator() -> torch.Generator:
    """Draws operands where claims are measured: on the GPU, in tests on the CPU."""
    return torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(SEED)


def drawn(draw: torch.Generator, *shape: int) -> torch.Tensor:
    """Normal float16 numbers."""
    return torch.empty(shape, dtype=torch.float16, device=draw.device).normal_(generator=draw)


def drawn_pairs(
    draw: torch.Generator, copies: int, *shape: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two operands for each copy."""
    return [(drawn(draw, *shape), drawn(draw, *shape)) for _ in range(copies)]


def summed(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Tensors:
    """The sum of the first two in float64."""
    first, second = pairs[0]
    return (first.double() + second.double(),)


def size_text(tokens: int, features: int) -> str:
    """The size of a race in words."""
    return f"{tokens:,} tokens x {features:,}, fp16"


def eager(
    what: str, way: Callable[[AnyOperation], Tensors], operations: Sequence[AnyOperation]
) -> Entrant:
    """The source's PyTorch sequence; its launches and bytes are counted while it runs."""
    calls = [partial(way, one) for one in operations]
    entrant = pytorch(PYTORCH, what, calls, (), _ROUNDINGS)
    # Of the operands as they are then: an operation in place changes them.
    return dataclasses.replace(entrant, reference=lambda: operations[0].reference(0))


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


def fastest_of_ours(race: Race) -> EntrantFigures:
    """Ours with the shortest time in a graph; any of ours if all failed their checks."""

    def device_ns(one: EntrantFigures) -> float:
        return float("inf") if one.device_ns is None else one.device_ns.median

    return min((one for one in race.entrants if one.ours), key=device_ns)


def over_eager(
    what: str, race: Race, name: str, published: float | None, published_share: float | None
) -> Row:
    """How many times as fast as the baseline; `published_share` is what the source's kernel reached
    of its GPU's bandwidth by the bytes that move."""
    row = speed_up(what, race, PYTORCH, name, published)
    return replace(row, published_share=published_share)


def share_by(
    setup: Setup, race: Race, name: str, counted: int, elements: int, published: float
) -> Row:
    """A share of the datasheet's bandwidth by a number of elements for each of the output."""
    row = share_of_peak(
        f"{'eager' if name == PYTORCH else 'one kernel'}, share of the datasheet's bandwidth by "
        f"{counted} elements",
        race,
        name,
        published,
        ITEM_BYTES * counted * elements,
        setup.datasheet_bytes_per_s,
    )
    return replace(row, baseline=name == PYTORCH)


def beside_others(race: Race, name: str) -> tuple[Row, ...]:
    """Ours beside Liger-Kernel, where it is installed, and beside the same bytes."""
    others = ((LIGER, "Liger-Kernel"), (STREAM, "PyTorch moving the same bytes"))
    present = {one.name for one in race.entrants if one.error is None}
    return tuple(
        speed_up(f"ours beside {what}", race, other, name, None)
        for other, what in others
        if other in present
    )
