"""Collects the operations of a step, with what the lowerings of all blocks have in common."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from decodescope.kernels.host.operation import Operation
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.linear import Linear
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.kernels.ops.quantize_rows import QuantizeRows
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import PlacedOperation
from decodescope.variants.steps.fused.torch_operators import TorchOperator


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a product: x, the norm that it has to apply itself, if any, and the scales of
    E4M3 x."""

    x: torch.Tensor
    norm: Norm | None = None
    scale: torch.Tensor | None = None


class StepBuilder:
    """Adds the operations of `plan` to a list, each under the path of its ranges."""

    def __init__(self, plan: StepPlan) -> None:
        self.operations: list[PlacedOperation] = []
        self.plan = plan
        self.spec = plan.spec
        self.buffers = plan.buffers
        self.tiles = plan.tiles
        self._single = len(plan.buffers.x) == 1
        # In a product, every program would norm all tokens of a batch.
        self._norm_inside = plan.spec.uses("norm") and (self._single or plan.spec.fp8_x)

    def add(self, path: str, operation: Operation) -> None:
        self.operations.append(PlacedOperation(tuple(path.split("/")), operation))

    def call(self, path: str, function: Callable[..., object], *arguments: object) -> None:
        self.add(path, TorchOperator(partial(function, *arguments)))

    def normed(self, path: str, norm: Norm, weight: WeightMatrix, added: bool = False) -> Source:
        """The inputs that the product with `weight` reads of the residual stream after `norm`.

        `path` is that of a norm in a launch of its own. Unless `added`, the output of the
        projection before is not in the residual stream yet if additions are left to the norms.
        """
        buffers, x = self.buffers, self.buffers.x
        if self._norm_inside and (self._single or weight.data.element_size() == 1):
            return self.quantized(f"{path}/quantize", Source(x, norm), weight)
        out = buffers.normed_half if weight.data.element_size() == 1 else buffers.normed
        if not (added or self._norm_inside or self.spec.uses("residual")):
            self.add(path, RmsNormResidual(buffers.added, x, norm, out))
        else:
            self.add(path, RmsNorm(x, norm, out))
        return self.quantized(f"{path}/quantize", Source(out), weight)

    def quantized(self, path: str, source: Source, weight: WeightMatrix) -> Source:
        """`source` with the norm applied, in E4M3, if the product with `weight` takes it so."""
        if not self.spec.fp8_x or weight.data.element_size() > 1:
            return source
        codes = self.buffers.codes[: source.x.numel()].view(source.x.shape)
        self.add(path, QuantizeRows(source.x, source.norm, codes, self.buffers.scales))
        return Source(codes, scale=self.buffers.scales)

    def linear(
        self, path: str, source: Source, weight: WeightMatrix, out: torch.Tensor, tile: Tile
    ) -> None:
        """A product with nothing fused: nothing adds up the parts of a split."""
        unsplit = replace(tile, splits=1)
        self.add(path, Linear(source.x, weight, out, unsplit, source.norm, source.scale))

    def add_product(self, path: str, x: torch.Tensor, weight: WeightMatrix, tile: Tile) -> None:
        """Add W x to the residual stream, or leave that to the norm that comes next."""
        buffers = self.buffers
        source = self.quantized(f"{path.rpartition('/')[0]}/quantize", Source(x), weight)
        if self.spec.uses("residual"):
            memory = buffers.x, tile, self.plan.workspace
            self.add(f"{path}+residual", LinearResidual(source.x, weight, *memory, source.scale))
            return
        self.linear(path, source, weight, buffers.added, tile)
        if self._norm_inside:
            self.call(f"{path.rpartition('/')[0]}/residual", buffers.x.add_, buffers.added)


def row_blocks(weight: WeightMatrix, rows: list[int]) -> Iterator[WeightMatrix]:
    """The matrix cut into blocks of so many rows."""
    first = 0
    for count in rows:
        block = slice(first, first + count)
        yield WeightMatrix(
            weight.data[block],
            None if weight.scale is None else weight.scale[block],
            None if weight.bias is None else weight.bias[block],
        )
        first += count
