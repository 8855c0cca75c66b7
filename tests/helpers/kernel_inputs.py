"""Inputs of the standalone kernels' tests, and how near their results must be; experts' second
half."""

import torch

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts

# One rounding: at most half a unit of fp16, a whole one of bf16, which the interpreter truncates.
LIMITS = {torch.float32: 5e-7, torch.float16: 5e-4, torch.bfloat16: 8e-3}


def random(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, device: str
) -> torch.Tensor:
    """Normal numbers, the same for the same shape and seed."""
    generator = torch.Generator().manual_seed(hash((seed, *shape)))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def poisoned(like: torch.Tensor) -> torch.Tensor:
    """NaN everywhere, so that what is not written shows."""
    return torch.full_like(like, float("nan"))


def at(position: int, device: str) -> torch.Tensor:
    """A position as kernels read it."""
    return torch.tensor([position], dtype=torch.int32, device=device)


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """|out - expected| / |expected| in float64."""
    difference = out.double() - expected.double()
    return (difference.norm() / expected.double().norm()).item()


def run_experts_down(
    x: torch.Tensor,
    experts: Experts,
    logits: torch.Tensor,
    residual: torch.Tensor,
    tile: Tile,
    adds: bool = True,
) -> None:
    """Add the weighted outputs of the experts to `residual`, or write them there."""
    if len(x) == 1:
        ExpertsDown(x, experts, logits, residual, tile, adds).launch()
        return
    size = (*x.shape[:2], residual.shape[1])
    products = torch.full(size, torch.nan, dtype=torch.float32, device=x.device)
    ExpertsDownProducts(x, experts, logits, products, tile).launch()
    ExpertsCombine(products, experts, logits, residual, adds).launch()
