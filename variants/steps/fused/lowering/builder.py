"""Collects the operations of a step, with what the lowerings of all blocks have in common."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from decodescope.kernels.host.operation import Operation, ResidualOperation
from decodescope.kernels.host.product import multiplies_fp8
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import PAIR_X, Norm, WeightMatrix
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.kernels.ops.linear import Linear
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.kernels.ops.quantize_rows import QuantizeRows
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_integers import RmsNormIntegers
from decodescope.kernels.ops.rms_norm_pairs import RmsNormPairs
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.variants.parallel.sums import RankSums
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import PlacedOperation
from decodescope.variants.steps.fused.torch_operators import TorchOperator


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a product: x, the norm that it has to apply itself, if any, and the scales of
    quantised x."""

    x: torch.Tensor
    norm: Norm | None = None
    scale: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """The use of a product: a launch under `path` adds it, or its `norm`, to the residual
    stream, and multiplies the sum by `factor`."""

    path: str = ""
    norm: Norm | None = None
    factor: torch.Tensor | None = None


class StepBuilder:
    """Adds the operations of `plan` to a list, each under the path of its ranges."""

    def __init__(self, plan: StepPlan) -> None:
        self.operations: list[PlacedOperation] = []
        self.plan = plan
        self.spec = plan.spec
        self.buffers = plan.buffers
        self.tiles = plan.tiles
        # Of each layer with experts in turn.
        self.router_logits: Iterator[torch.Tensor] = iter(plan.buffers.router_logits)
        # For what `StepBuffers.added` holds and no launch has added yet.
        self._left: Behind | None = None
        # Whether the ranks' partial sum holds a product already.
        self._begun = False
        self._read = Source(plan.buffers.x)
        self._single = len(plan.buffers.x) == 1
        # In a product, every program would norm all tokens of a batch.
        self._norm_inside = plan.spec.uses("norm") and (self._single or plan.spec.fp8_x)

    def add(self, path: str, operation: Operation) -> None:
        self.operations.append(PlacedOperation(tuple(path.split("/")), operation))

    def call(self, path: str, function: Callable[..., object], *arguments: object) -> None:
        self.add(path, TorchOperator(partial(function, *arguments)))

    def rows(self, buffer: torch.Tensor, width: int) -> torch.Tensor:
        """The first elements of a flat `buffer` as [batch, width]."""
        batch = len(self.buffers.x)
        return buffer[: batch * width].view(batch, width)

    def normed(
        self, path: str, norm: Norm | None, weight: WeightMatrix, experts: bool = False
    ) -> Source:
        """The inputs that the product with `weight`, or `experts` with it, reads of the residual
        stream after `norm`.

        `path` is that of a norm in a launch of its own. What the projection before has left is
        added first, in the launch of the norm if there is one.
        """
        buffers, x, left = self.buffers, self.buffers.x, self._left
        narrow = weight.narrow
        out = buffers.normed_half if narrow else buffers.normed
        inside = self._norm_inside and (self._single or narrow)
        apart = norm is not None and (norm.centered or not inside)
        self._read = Source(out)
        if left is not None and (apart if left.norm is None else norm and self.spec.uses("norm")):
            self._left = None
            path_of_both = path if left.norm is None else left.path
            both = RmsNormResidual(buffers.added, x, norm, out, left.norm, left.factor)
            self.add(path_of_both, both)
        else:
            self.add_left()
            source = None if experts or norm is None else self._in_two_parts(path, norm, weight)
            if source is not None:
                self._read = source
            elif norm is not None and apart:
                self.add(path, RmsNorm(x, norm, out))
            else:
                self._read = Source(x, norm)
        return self.kept(path, weight)

    def kept(self, path: str, weight: WeightMatrix) -> Source:
        """The inputs of the last product that had a norm in a launch of its own, for the product
        with `weight`."""
        return self.quantized(f"{path}/quantize", self._read, weight)

    def add_left(self) -> None:
        """Add what a product has left, if any, to the residual stream."""
        left, self._left = self._left, None
        buffers = self.buffers
        if left is not None and left.norm is None:
            self.call(left.path, buffers.x.add_, buffers.added)
            if left.factor is not None:
                self.call(left.path, buffers.x.mul_, left.factor)
        elif left is not None:
            memory = buffers.added, buffers.x, None, None
            self.add(left.path, RmsNormResidual(*memory, left.norm, left.factor))

    def quantized(self, path: str, source: Source, weight: WeightMatrix) -> Source:
        """`source` with the norm applied, in E4M3, if the product with `weight` takes it so."""
        if not self.spec.fp8_x or not weight.narrow:
            return source
        codes = self.rows(self.buffers.codes, source.x.shape[1])
        self.add(path, QuantizeRows(source.x, source.norm, codes, self.buffers.scales))
        return Source(codes, scale=self.buffers.scales)

    def _in_two_parts(self, path: str, norm: Norm, weight: WeightMatrix) -> Source | None:
        """x after `norm` in two parts of 8 bits, if the product with `weight` takes it so. Without
        a norm, the launch that gives them would cost as much as they save."""
        x, scales, spec = self.buffers.x, self.buffers.scales, self.spec
        codes = self.rows(self.buffers.codes, x.shape[1])
        if spec.fp8_x or norm.centered or not spec.uses("norm"):
            return None
        # int16 has fewer digits than float32.
        if self._single and weight.takes_integers and x.dtype != torch.float32:
            self.add(path, RmsNormIntegers(x, norm, codes, scales))
            return Source(codes, scale=scales)
        # A pair has fewer digits than float16.
        pairs = not self._single and weight.takes_pairs and x.dtype == torch.bfloat16
        if pairs and multiplies_fp8(x.device):
            codes = codes.view(PAIR_X)
            self.add(path, RmsNormPairs(x, norm, codes, scales))
            return Source(codes, scale=scales)
        return None

    def linear(
        self, path: str, source: Source, weight: WeightMatrix, out: torch.Tensor, tile: Tile
    ) -> None:
        """A product with nothing fused: nothing adds up the parts of a split."""
        unsplit = replace(tile, splits=1)
        self.add(path, Linear(source.x, weight, out, unsplit, source.norm, source.scale))

    def add_product(
        self,
        path: str,
        x: torch.Tensor,
        weight: WeightMatrix,
        tile: Tile,
        behind: Behind = Behind(),
        **over_ranks: bool,
    ) -> None:
        """Add W x to the residual stream as `behind` says, or leave that to what comes next;
        `over_ranks` as of `add_sum`."""
        source = self.quantized(f"{path.rpartition('/')[0]}/quantize", Source(x), weight)
        product = partial(
            LinearResidual,
            source.x,
            weight,
            tile=tile,
            workspace=self.plan.workspace,
            x_scale=source.scale,
        )
        self.add_residual(path, product, behind, **over_ranks)

    def add_residual(
        self,
        path: str,
        operation: Callable[..., ResidualOperation],
        behind: Behind = Behind(),
        continued: bool = False,
        whole: bool = False,
    ) -> None:
        """Add the result of `operation(residual, adds=...)` to the residual stream as `behind`
        says, or leave that to what comes next. `continued` and `whole` as of `add_sum`."""
        self.add_left()
        adds = self.spec.uses("residual") and behind.norm is None and behind.factor is None
        target = self.buffers.x if adds else self.buffers.added
        self.add_sum(path, operation, target, adds, continued, whole)
        if not adds and not self._begun:
            self.leave(f"{path.rpartition('/')[0]}/residual", behind)

    def add_sum(
        self,
        path: str,
        operation: Callable[..., ResidualOperation],
        target: torch.Tensor,
        adds: bool,
        continued: bool = False,
        whole: bool = False,
    ) -> None:
        """Write the result of `operation(target, adds=...)` to `target`, or add it there.

        Of several ranks each has a part of the result, unless it is `whole`. They add up their
        parts; if it is `continued`, together with those of the next result. Our kernels send the
        parts to the other ranks as they write the last of them."""
        sums = self.plan.sums
        if sums is None or whole:
            self.add(f"{path}+residual" if adds else path, operation(target, adds=adds))
            return
        shared = None if continued or sums.sums is None else sums.sums.exchange
        self.add(path, operation(sums.partial, adds=self._begun, exchange=shared))
        self._begun = continued
        if not continued:
            self._add_up(f"{path.rpartition('/')[0]}/all_reduce", sums, target, adds)

    def leave(self, path: str, behind: Behind) -> None:
        """Leave the addition of what `StepBuffers.added` holds to what comes next. Without the
        fusion it is under `path`."""
        if self.spec.uses("residual"):
            self._left = behind
            return
        if behind.norm is not None:
            self.add(behind.path, RmsNorm(self.buffers.added, behind.norm, self.buffers.added))
        self._left = Behind(path, None, behind.factor)

    def _add_up(self, path: str, sums: RankSums, target: torch.Tensor, adds: bool) -> None:
        """Add the sum of the ranks' parts to `target`, or write it there."""
        joined = f"{path}+residual" if adds else path
        if sums.sums is not None:
            shared = sums.sums.exchange
            self.add(joined, AllReduceResidual(sums.partial, target, shared, adds, pushed=True))
            return
        self.call(joined, sums.add_up, target, adds)


def row_blocks(weight: WeightMatrix, rows: list[int]) -> Iterator[WeightMatrix]:
    """The matrix cut into blocks of so many rows."""
    first = 0
    for count in rows:
        block = slice(first, first + count)
        part = WeightMatrix(
            weight.data[block],
            None if weight.scale is None else weight.scale[block],
            None if weight.bias is None else weight.bias[block],
            weight.packing,
        )
        yield part if weight.group_scales is None else part.for_batches()
        first += count
