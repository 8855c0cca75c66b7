"""Fixtures of tests of kernels: inputs that are random, seeded by their shape, and checks."""

import zlib
from collections.abc import Callable

import pytest
import torch

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from decodescope.kernels.host.weights import NarrowFormat, Norm, QkNorm, WeightMatrix, narrow_matrix
from decodescope.kernels.host.workspace import NO_KEY, Workspace, new_workspace


class Inputs:
    """Tensors of one dtype on one device."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.dtype = dtype
        self.device = device

    def random(self, *shape: int, seed: int = 0, dtype: torch.dtype | None = None) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(repr((seed, shape)).encode()))
        values = torch.randn(shape, generator=generator)
        return values.to(dtype or self.dtype).to(self.device)

    def poisoned(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.full(shape, float("nan"), dtype=dtype or self.dtype, device=self.device)

    def position(self, at: int) -> torch.Tensor:
        return torch.tensor([at], dtype=torch.int32, device=self.device)

    def weight(
        self, rows: int, columns: int, scaled: bool = False, biased: bool = False
    ) -> WeightMatrix:
        """Rows of about unit length, so that outputs are about as large as inputs."""
        data = (self.random(rows, columns, dtype=torch.float32) / columns**0.5).to(self.dtype)
        scale = self.random(rows, seed=1, dtype=torch.float32).abs() + 0.25
        bias = self.random(rows, seed=2)
        return WeightMatrix(data, scale if scaled else None, bias if biased else None)

    def narrow(
        self, rows: int, columns: int, format: NarrowFormat, biased: bool = False
    ) -> WeightMatrix:
        """As `weight`, of narrow elements with a scale for each row."""
        full = (self.random(rows, columns, dtype=torch.float32) / columns**0.5).to(self.device)
        bias = self.random(rows, seed=2) if biased else None
        return narrow_matrix(full, format, bias=bias)

    def norm(self, features: int, seed: int = 3) -> Norm:
        return Norm(self.random(features, seed=seed) * 0.3 + 1, 1e-5)

    def qk_norm(self, head_dim: int) -> QkNorm:
        """Norms of Q and K that differ, with an eps that shows in the result."""
        weights = (self.norm(head_dim, seed=7).weight, self.norm(head_dim, seed=8).weight)
        return QkNorm(*weights, 1e-3)

    def workspace(self, partials: int, counters: int) -> Workspace:
        workspace = new_workspace(partials, counters, self.device)
        workspace.partials.fill_(float("nan"))
        return workspace


@pytest.fixture
def inputs(device: str) -> Callable[[torch.dtype], Inputs]:
    """`inputs(dtype)` makes a test's tensors."""
    return lambda dtype: Inputs(dtype, device)


# One rounding of the output, and in batched kernels with a norm one of g x: half a unit each.
_LIMITS = {torch.float32: 6e-7, torch.float16: 7e-4, torch.bfloat16: 5e-3}
# The interpreter truncates to bf16: up to a whole unit.
_LIMITS_ON_CPU = _LIMITS | {torch.bfloat16: 2.0**-7}
# Pairs of float16 are added in float16, 16 columns at a time; several tokens read weights and x
# rounded to float16. The interpreter, and float32 models, add in float32.
_PACKED_LIMITS = {torch.float32: 1e-6, torch.float16: 1.5e-3, torch.bfloat16: 6e-3}


@pytest.fixture
def assert_close() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Fails unless `out` is as near to a float64 reference as its dtype allows."""

    def check(out: torch.Tensor, expected: torch.Tensor) -> None:
        assert expected.dtype == torch.float64
        error = ((out.double() - expected).norm() / expected.norm()).item()
        limits = _LIMITS if out.is_cuda else _LIMITS_ON_CPU
        assert error < limits[out.dtype]

    return check


def assert_near(out: torch.Tensor, expected: torch.Tensor) -> None:
    """As `assert_close`, of products with weights of 4 bits."""
    error = (out.double() - expected).norm() / expected.norm()
    assert error < _PACKED_LIMITS[out.dtype]


@pytest.fixture
def assert_reset() -> Callable[[Workspace], None]:
    """Fails unless the workspace's counters and keys are as new."""

    def check(workspace: Workspace) -> None:
        assert not workspace.counters.any()
        assert (workspace.keys == NO_KEY).all()

    return check
