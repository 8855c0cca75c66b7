"""What a kernel is measured on: random operands of a model's shapes, and the error of a result."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch

from benchmarks.harness.errors import relative_error
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.kv_cache import KvScales
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.packed import in_column_order, sums_of_pairs
from decodescope.kernels.host.packing import CHUNK
from decodescope.kernels.host.weights import (
    INTEGER_X,
    PAIR_X,
    NarrowFormat,
    Norm,
    QkNorm,
    WeightMatrix,
    quantized_rows,
)
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.plan import step_workspace
from decodescope.variants.steps.fused.tiling.shapes import StepTiles

SEED = 0
_FUSED = VariantSpec("fused")

# Both bytes of a pair are NaN in E4M3.
_POISON = {INTEGER_X: -(2**15), PAIR_X: 0x7F7F}
# Norms and biases are random too: with 1 and 0, a kernel that leaves them out would pass.
_NORM_STD = 0.2
_BIAS_STD = 0.3


class Operands:
    """Draws operands for one model (only the shapes of `parts` matter), batch and cache length; the
    same seed gives the same numbers on one device.

    `context` tokens are in the KV cache before the step. `spec` says how weights (of `parts`), K
    and V are stored. One `workspace` serves all kernels.
    """

    def __init__(
        self,
        parts: FusedModel,
        batch: int,
        context: int,
        tiles: StepTiles,
        device: str,
        spec: VariantSpec = _FUSED,
    ) -> None:
        self.spec = spec
        self.parts = parts
        self.batch = batch
        self.context = context
        self.tiles = tiles
        self.dtype = parts.dtype
        self.device = device
        self.workspace = step_workspace(parts, batch, tiles, device)
        self._generator = torch.Generator(device).manual_seed(SEED)

    def like(
        self, operation: KernelOperation, position: int, kept: Mapping[str, Any]
    ) -> KernelOperation:
        """`operation` at `position` on random operands of the same shapes, except those `kept`."""
        drawn = {
            name: kept[name] if name in kept else self._drawn(value, position)
            for name, value in operation.arguments.items()
        }
        return replace(operation, **drawn)  # type: ignore[type-var]

    def tensor(self, like: torch.Tensor, position: int) -> torch.Tensor:
        """Normal numbers; ids of the vocabulary for int64, `position` for int32, and codes for the
        activations that `rms_norm_integers.py` and `rms_norm_pairs.py` give."""
        if like.dtype == INTEGER_X:
            # Of each chunk, the upper bytes and then the lower ones: small numbers.
            planes = torch.zeros(len(like), like.shape[1] // CHUNK, 2, CHUNK, device=self.device)
            planes[:, :, 1].normal_(generator=self._generator)
            return planes.to(torch.int8).flatten(1).view(INTEGER_X)
        if like.dtype == PAIR_X:
            twice = self._normal(torch.empty(len(like), 2 * like.shape[1], device="meta"))
            return twice.to(torch.float8_e4m3fn).view(PAIR_X)
        if like.dtype == torch.int32:
            return self.position(position)
        if like.dtype == torch.int64:
            vocabulary, shape = self.parts.embedding.rows, like.shape
            return torch.randint(vocabulary, shape, generator=self._generator, device=self.device)
        return self._normal(like)

    def position(self, value: int) -> torch.Tensor:
        """int32 [1] on the device."""
        return torch.full((1,), value, dtype=torch.int32, device=self.device)

    def matrix(self, like: WeightMatrix) -> WeightMatrix:
        """A matrix of the same format, whose products keep the size of activations."""
        std = like.columns**-0.5
        bias = None if like.bias is None else self._normal(like.bias, std=_BIAS_STD)
        if not like.narrow:
            return WeightMatrix(self._normal(like.data, std=std), bias=bias)
        values = self._normal(
            torch.empty(like.rows, like.columns, dtype=self.dtype, device="meta"), std=std
        )
        data, scale = self.quantized(
            values, cast(NarrowFormat, like.format), like.scale is not None
        )
        return WeightMatrix(data, scale, bias, like.packing).for_batches()

    def quantized(
        self, values: torch.Tensor, format: NarrowFormat, scaled: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`quantized_rows` of `values` on the device."""
        return quantized_rows(values, format, scaled)

    def experts(self, like: Experts) -> Experts:
        """Experts of the same sizes and formats."""
        return replace(
            like,
            router=self.matrix(like.router),
            gate_up=self.matrix(like.gate_up),
            down=self.matrix(like.down),
            correction=None if like.correction is None else self._normal(like.correction),
        )

    def _drawn(self, value: object, position: int) -> object:
        match value:
            case torch.Tensor():
                return self.tensor(value, position)
            case WeightMatrix():
                return self.matrix(value)
            case Experts():
                return self.experts(value)
            case Norm():
                return Norm(self._norm_weight(value.weight), value.eps)
            case QkNorm():
                weights = self._norm_weight(value.q_weight), self._norm_weight(value.k_weight)
                return QkNorm(*weights, value.eps)
            case RopeTable():
                angles = torch.empty(value.cos.shape, device=self.device)
                angles.uniform_(0.0, 2.0 * torch.pi, generator=self._generator)
                return RopeTable(angles.cos(), angles.sin(), value.distance)
            case KvScales():
                scales = (self._norm_weight(one).abs() + 0.1 for one in (value.k, value.v))
                return KvScales(*scales)
            case Workspace():
                return self.workspace
        return value

    def _norm_weight(self, like: torch.Tensor) -> torch.Tensor:
        return 1.0 + self._normal(like, std=_NORM_STD)

    def _normal(self, like: torch.Tensor, std: float = 1.0) -> torch.Tensor:
        """Normal numbers around 0, contiguous."""
        # PyTorch draws no float8.
        dtype = like.dtype if like.dtype.itemsize > 1 else self.dtype
        values = torch.empty(like.shape, dtype=dtype, device=self.device)
        return values.normal_(0.0, std, generator=self._generator).to(like.dtype)


def operation_error(operation: KernelOperation, position: int, pdl: bool) -> float:
    """The largest relative error of what one launch writes; its outputs are NaN before it, or the
    least integer."""
    expected = operation.reference(position)
    outputs = operation.outputs(position)
    for out in outputs:
        out.fill_(_POISON.get(out.dtype, float("nan")))
    operation.launch(pdl)
    results = map(_numbers, (*outputs, *operation.updated))
    return max(relative_error(*pair) for pair in zip(results, expected, strict=True))


def _numbers(result: torch.Tensor) -> torch.Tensor:
    """The numbers that the codes of activations stand for."""
    if result.dtype == INTEGER_X:
        return in_column_order(result)
    return sums_of_pairs(result) if result.dtype == PAIR_X else result
