"""What a kernel is measured on: random operands of a model's shapes, and the error of a result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.steps.fused.buffers import step_workspace
from decodescope.variants.steps.fused.model_parts import FusedModel
from decodescope.variants.steps.fused.tiling.rules import StepTiles

SEED = 0

# Norms and biases that are random too: with 1 and 0 a kernel that leaves them out would be right.
_NORM_STD = 0.2
_BIAS_STD = 0.3


@dataclass(frozen=True, slots=True)
class Copy:
    """One set of operands, in memory of its own.

    `launch(pdl)` launches the kernel on it once. `relative_error(pdl)` launches it once on poisoned
    outputs and compares them with the reference.
    """

    launch: Callable[[bool], None]
    relative_error: Callable[[bool], float]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One kernel as one operation of the step uses it; `copies(n)` makes n sets of operands.

    The other fields are those of `KernelFigures`.
    """

    operation: str
    kernel: str
    shape: str
    launches_per_step: int
    bytes_moved: int
    tile: Tile | None
    copies: Callable[[int], Sequence[Copy]]


class Operands:
    """Draws operands for one model (`parts`, of whose tensors only shapes count), batch and cache
    length; the same seed gives the same numbers on one device.

    `context` tokens are in the KV cache before the step. One `workspace` serves all kernels.
    """

    def __init__(
        self, parts: FusedModel, batch: int, context: int, tiles: StepTiles, device: str
    ) -> None:
        self.parts = parts
        self.batch = batch
        self.context = context
        self.tiles = tiles
        self.dtype = parts.embedding.dtype
        self.device = device
        self._generator = torch.Generator(device).manual_seed(SEED)
        on_device = parts.embedding.new_empty((0, parts.hidden), device=device)
        self.workspace = step_workspace(replace(parts, embedding=on_device), batch, tiles)

    def normal(self, *shape: int, std: float = 1.0) -> torch.Tensor:
        """Normal numbers around 0 in the model's dtype."""
        values = torch.empty(shape, dtype=self.dtype, device=self.device)
        return values.normal_(0.0, std, generator=self._generator)

    def empty(self, *shape: int) -> torch.Tensor:
        """Memory for a result; NaN, so that a kernel that leaves some of it out is found out."""
        return torch.full(shape, float("nan"), dtype=self.dtype, device=self.device)

    def matrix(self, like: WeightMatrix) -> WeightMatrix:
        """Weights that keep the size of what they multiply."""
        bias = None if like.bias is None else self.normal(like.rows, std=_BIAS_STD)
        return WeightMatrix(self.normal(*like.data.shape, std=like.columns**-0.5), bias=bias)

    def norm(self, like: Norm) -> Norm:
        """A norm of other weights around 1."""
        return Norm(1.0 + self.normal(*like.weight.shape, std=_NORM_STD), like.eps)

    def qk_norm(self, like: QkNorm | None) -> QkNorm | None:
        """Other weights around 1; None where the model has no QK-norm."""
        if like is None:
            return None
        q, k = (self.norm(Norm(weight, like.eps)) for weight in (like.q_weight, like.k_weight))
        return QkNorm(q.weight, k.weight, like.eps)

    def rope(self, positions: int) -> RopeTable:
        """Rotations by random angles."""
        shape = (positions, self.parts.head_dim // 2)
        angles = torch.empty(shape, device=self.device).uniform_(
            0.0, 2.0 * torch.pi, generator=self._generator
        )
        return RopeTable(angles.cos(), angles.sin())

    def kv_rows(self, capacity: int) -> torch.Tensor:
        """K or V of one layer, [batch, KV heads, capacity, head_dim]."""
        return self.normal(self.batch, self.parts.kv_heads, capacity, self.parts.head_dim)

    def tokens(self, columns: int) -> torch.Tensor:
        """Random ids int64 [batch, columns]."""
        return torch.randint(
            self.parts.embedding.shape[0],
            (self.batch, columns),
            generator=self._generator,
            device=self.device,
        )

    def position(self, value: int) -> torch.Tensor:
        """int32 [1] on the device."""
        return torch.full((1,), value, dtype=torch.int32, device=self.device)


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """|out - reference| ÷ |reference| (Euclidean, float64); infinite where it is not finite."""
    reference = reference.double()
    error = (out.double() - reference).norm() / reference.norm()
    return float(error) if bool(error.isfinite()) else float("inf")
