"""Weights of 8 and 4 bits: which of a model have them, and the modules that hold them.

The modules take the place of nn.Linear, nn.Embedding and the stacked matrices of experts in a
transformers model, and hold the very tensors that the fused kernels read. Each output channel of 8
bits has one scale. No embedding has 4 bits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from decodescope.kernels.host import packed
from decodescope.kernels.host.packing import PACKED_FORMATS, PackedFormat, Packing
from decodescope.kernels.host.weights import NARROW_DTYPES, ByteFormat, NarrowFormat
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec

# The element type or the format of 4 bits, and whether rows have scales.
Stored = tuple[torch.dtype | PackedFormat, bool]
# Elements [..., rows, columns], their scales [..., rows] or None, a dtype, and the packing of
# elements of 4 bits: W in that dtype.
Convert = Callable[[torch.Tensor, torch.Tensor | None, torch.dtype, Packing | None], torch.Tensor]

# transformers holds the matrices of all experts of a layer in one tensor.
EXPERT_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class Quantization:
    """The weights of a narrow format: the matrices of the layers, experts included, lm_head with
    `head`, and with `embedding` the embedding table, which has 8 bits. Without `scaled` every scale
    is 1."""

    format: NarrowFormat
    scaled: bool = True
    head: bool = True
    embedding: bool = False

    @property
    def stored(self) -> Stored:
        for name, packed_format in PACKED_FORMATS.items():
            if name == self.format:
                return packed_format, packed_format.row_scaled
        return NARROW_DTYPES[cast(ByteFormat, self.format)], self.scaled

    @property
    def of_table(self) -> "Quantization":
        """How the embedding table is stored: INT8 beside 4 bits."""
        return replace(self, format="int8") if self.format in PACKED_FORMATS else self


def quantization_of(spec: VariantSpec | None) -> Quantization | None:
    """The narrow format in which a variant stores weights; None: as they were loaded."""
    if spec is None or spec.weight_format not in NARROW_WEIGHTS:
        return None
    weights = NARROW_WEIGHTS[spec.weight_format]
    return Quantization(weights.elements, weights.scaled, not spec.head16, spec.narrow_embedding)


class QuantizedMatrix(nn.Module):
    """W [rows, columns]: W[r, k] = data[r, k] * scale[r], as `kernels.host.weights.WeightMatrix`.

    `data` is FP8 or INT8, `scale` float32 [rows], None where every scale is 1; of experts, both
    have a dimension more, the first. With a `packing`, `data` is words. They are no
    parameters: what casts or upcasts a model moves them with it, and leaves their types alone.
    """

    def __init__(
        self, data: torch.Tensor, scale: torch.Tensor | None, packing: Packing | None = None
    ) -> None:
        super().__init__()
        self.data = data
        self.scale = scale
        self.packing = packing

    @property
    def stored(self) -> Stored:
        if self.packing is not None:
            # Of other formats, a row has a scale where float16 lacks those of its groups.
            return self.packing.format, self.packing.format.row_scaled
        return self.data.dtype, self.scale is not None

    @property
    def elements(self) -> int:
        """The number of weights."""
        return self.data.shape[:-1].numel() * self.columns

    @property
    def columns(self) -> int:
        return int(self.data.shape[-1]) if self.packing is None else self.packing.columns

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        yield self.data
        if self.scale is not None:
            yield self.scale

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        device = fn(self.data[:0]).device
        self.data = self.data.to(device)
        self.scale = None if self.scale is None else self.scale.to(device)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class QuantizedLinear(QuantizedMatrix):
    """y = x W^T + bias, with W in the dtype of x, rounded once. `bias` is [rows] in that dtype.

    Each call makes that W anew, in `rows * columns` elements of temporary memory: it serves the
    prefill, where one W multiplies a whole prompt. PyTorch makes it, or what `converting_with` has.
    """

    def __init__(
        self,
        data: torch.Tensor,
        scale: torch.Tensor | None,
        bias: nn.Parameter | None = None,
        packing: Packing | None = None,
    ) -> None:
        super().__init__(data, scale, packing)
        self.bias = bias
        self.convert: Convert = scaled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., columns] -> [..., rows]."""
        weight = self.convert(self.data, self.scale, x.dtype, self.packing)
        return F.linear(x, weight, self.bias)


class _Indexed(QuantizedMatrix):
    """A table of rows or of experts, read in `dtype`, that of the model."""

    def __init__(
        self,
        data: torch.Tensor,
        scale: torch.Tensor | None,
        dtype: torch.dtype,
        packing: Packing | None = None,
    ) -> None:
        super().__init__(data, scale, packing)
        self.dtype = dtype

    def _entries(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        # Not every device can index FP8.
        data = self.data.view(torch.int8)[ids].view(self.data.dtype)
        return data, None if self.scale is None else self.scale[ids]


class QuantizedEmbedding(_Indexed):
    """W[ids], times `factor` if there is one (Gemma)."""

    def __init__(
        self,
        data: torch.Tensor,
        scale: torch.Tensor | None,
        dtype: torch.dtype,
        factor: float | None = None,
    ) -> None:
        super().__init__(data, scale, dtype)
        self.factor = factor

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [...] -> [..., columns]."""
        values = scaled(*self._entries(ids), self.dtype)
        return values if self.factor is None else values * torch.tensor(self.factor).to(values)


class QuantizedExperts(_Indexed):
    """The matrices of all experts of a layer, in the place of their parameter: it does what
    transformers does with that one. `convert` makes the matrices that are asked for anew. With
    `by_inputs` the parameter is [experts, columns, rows]."""

    def __init__(
        self,
        data: torch.Tensor,
        scale: torch.Tensor | None,
        dtype: torch.dtype,
        packing: Packing | None = None,
        by_inputs: bool = False,
    ) -> None:
        super().__init__(data, scale, dtype, packing)
        self.by_inputs = by_inputs
        self.convert: Convert = scaled

    def __getitem__(self, experts: torch.Tensor) -> torch.Tensor:
        """experts [...] -> their matrices [..., rows, columns], or `by_inputs` their transposes."""
        matrices = self.convert(*self._entries(experts), self.dtype, self.packing)
        return matrices.mT if self.by_inputs else matrices

    def transpose(self, first: int, second: int) -> torch.Tensor:
        """The matrices of all experts with two dimensions exchanged."""
        return self.convert(self.data, self.scale, self.dtype, self.packing).transpose(
            first, second
        )


@contextmanager
def converting_with(convert: Convert, model: nn.Module) -> Iterator[None]:
    """Within it, the quantised linear layers and experts of `model` make their W with `convert`."""
    kinds = QuantizedLinear | QuantizedExperts
    modules = [module for module in model.modules() if isinstance(module, kinds)]
    for module in modules:
        module.convert = convert
    try:
        yield
    finally:
        for module in modules:
            module.convert = scaled


def quantized_formats(model: nn.Module) -> dict[str, Stored]:
    return {
        name: module.stored
        for name, module in model.named_modules()
        if isinstance(module, QuantizedMatrix)
    }


def untie(model: Any, key: str) -> None:
    """The head, if `key` is it, has no weight that could be the embedding's."""
    if model.all_tied_weights_keys.pop(f"{key}.weight", None) is not None:
        model.config.get_text_config(decoder=True).tie_word_embeddings = False


def weight_tensors(module: nn.Module) -> list[torch.Tensor]:
    """The distinct tensors of weights of `module`: parameters, quantised elements and scales."""
    tensors: list[torch.Tensor] = [*module.parameters()]
    for part in module.modules():
        if isinstance(part, QuantizedMatrix):
            tensors += part.tensors
    return list({id(tensor): tensor for tensor in tensors}.values())


def scaled(
    data: torch.Tensor,
    scale: torch.Tensor | None,
    dtype: torch.dtype,
    packing: Packing | None = None,
    at_once: int = 1 << 22,
) -> torch.Tensor:
    """data * scale in `dtype`: the elements are exact in every dtype, the product is rounded once
    (PyTorch multiplies in float32). Of 4 bits, `at_once` elements are unpacked at a time, each in
    20 bytes of memory."""
    if packing is not None:
        scales = None if scale is None else scale.flatten()
        made = _unpacked(data.flatten(0, -2), scales, dtype, packing, at_once)
        return made.view(*data.shape[:-1], packing.columns)
    values = data.to(dtype)
    return values if scale is None else values.mul_(scale.unsqueeze(-1))


def _unpacked(
    data: torch.Tensor,
    scale: torch.Tensor | None,
    dtype: torch.dtype,
    packing: Packing,
    at_once: int,
) -> torch.Tensor:
    made = torch.empty(len(data), packing.columns, dtype=dtype, device=data.device)
    # The compiler fuses what is computed of all rows.
    step = len(data) if torch.compiler.is_compiling() else max(1, at_once // packing.columns)
    for first in range(0, len(data), step):
        rows = slice(first, first + step)
        weights = packed.unpacked(data[rows], packing, torch.float32)
        made[rows] = weights if scale is None else weights.mul_(scale[rows, None])
    return made


def dequantized_bytes(model: Any) -> int:
    """Bytes of the largest matrix, or of all experts', that the prefill makes from quantised
    elements at a time. Experts `by_inputs` are made one by one."""
    made = [
        one.elements // (len(one.data) if getattr(one, "by_inputs", False) else 1)
        for one in model.modules()
        if isinstance(one, QuantizedLinear | QuantizedExperts)
    ]
    return max(made, default=0) * int(model.dtype.itemsize)


def stacked_experts(module: nn.Module) -> list[str]:
    """The parameters of `module` itself that hold a matrix for each expert, [experts, rows,
    columns]."""
    if isinstance(module, nn.Conv1d):
        return []
    named = module.named_parameters(recurse=False)
    return [name for name, weight in named if weight.dim() == EXPERT_DIMENSIONS]


def expert_tensors(model: nn.Module) -> list[torch.Tensor]:
    """The weights of all experts, their scales and biases: a token needs those of few experts."""
    tensors: list[torch.Tensor] = []
    for module in model.modules():
        held = [one for one in module.children() if isinstance(one, QuantizedExperts)]
        for one in held:
            tensors += one.tensors
        if held or stacked_experts(module):
            tensors += module.parameters(recurse=False)
    return tensors


def expert_elements(model: nn.Module) -> int:
    """The weights of all experts' matrices."""
    parameters = (
        getattr(module, name) for module in model.modules() for name in stacked_experts(module)
    )
    held = (one.elements for one in model.modules() if isinstance(one, QuantizedExperts))
    return int(sum(weight.numel() for weight in parameters) + sum(held))
