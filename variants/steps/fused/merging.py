"""The matrices and norms of transformers' modules.

Q, K and V, and gate and up, are read as one matrix each. Nothing is stored twice: the parts are
copied into one matrix, and the model's own parameters, or the elements and scales of its quantised
modules, become views of its rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.weights import FORMATS, Norm, QkNorm, WeightMatrix
from decodescope.variants.model.quantized_weights import QuantizedExperts, QuantizedMatrix

RUN_DTYPE = "the run dtype"


class MixedFormats(ModelError):
    """Modules that the fused kernels read as one matrix are stored in the `formats`, by name."""

    def __init__(self, formats: Mapping[nn.Module, str]) -> None:
        super().__init__("matrices of different formats in one layer")
        self.formats = formats

    def named(self, model: nn.Module) -> ModelError:
        """With the modules' names in `model`."""
        names = {part: name for name, part in model.named_modules()}
        stored = ", ".join(f"{names[part]} is {form}" for part, form in self.formats.items())
        # A variant's format is that of matrices which the checkpoint has in the run dtype.
        named = ", or name the quantized format in the variant"
        return ModelError(
            f"{stored}: the fused kernels read them as one matrix, of one format; choose eager or "
            f"compiled{named if RUN_DTYPE in self.formats.values() else ''}"
        )


def norm_of(module: Any) -> Norm:
    return Norm(module.weight.detach(), float(module.variance_epsilon))


def norm_plus_one(module: Any) -> Norm:
    """A norm that multiplies by weight + 1, in a vector of its own that is not rounded."""
    return Norm(1.0 + module.weight.detach().float(), float(module.eps))


def qk_norm_of(attention: Any, norm: Callable[[Any], Norm] = norm_of) -> QkNorm | None:
    """The norms of Q and K, None if the attention has none. One that makes no K norms Q alone."""
    if not hasattr(attention, "q_norm"):
        return None
    q = norm(attention.q_norm)
    k = norm(attention.k_norm) if hasattr(attention, "k_norm") else q
    return QkNorm(q.weight, k.weight, q.eps)


def scaled_rows(matrix: WeightMatrix, factor: float | torch.Tensor) -> WeightMatrix:
    """`factor`, or one of each row, times the matrix and its bias: the same elements with other
    scales."""
    data, scale, bias = matrix.pointers
    if scale is None:
        scale = torch.ones(matrix.rows, dtype=torch.float32, device=data.device)
    bias = None if bias is None else bias * factor
    return WeightMatrix(data, scale * factor, bias, matrix.packing)


def matrix_of(*modules: nn.Module) -> WeightMatrix:
    """All outputs of linear modules, in order, as one matrix; or an embedding table.

    Raises:
        MixedFormats: the modules are not stored in one format.
    """
    biases = [bias for part in modules if (bias := getattr(part, "bias", None)) is not None]
    bias = torch.cat(biases) if biases else None
    formats = [part.stored if isinstance(part, QuantizedMatrix) else None for part in modules]
    if len(set(formats)) > 1:
        names = [_format_name(format[0]) if format else RUN_DTYPE for format in formats]
        raise MixedFormats(dict(zip(modules, names, strict=True)))
    if formats[0] is None:
        return WeightMatrix(_merged(modules, "weight"), bias=bias)
    scaled = any(part.scale is not None for part in modules)
    for part in modules:
        # Of 4 bits, rows may have a scale in some parts only.
        if scaled and part.scale is None:
            part.scale = torch.ones(len(part.data), device=part.data.device)
    # Modules of one format that read the same x are packed alike.
    packing = next(part.packing for part in modules if isinstance(part, QuantizedMatrix))
    scale = _merged(modules, "scale") if scaled else None
    return WeightMatrix(_merged(modules, "data"), scale, bias, packing)


def _format_name(stored: object) -> str:
    return FORMATS[stored] if isinstance(stored, torch.dtype) else str(stored)


def experts_of(part: Any, bias: torch.Tensor | None = None) -> WeightMatrix:
    """The matrices of all experts, one after another: `part` is their parameter or what takes its
    place."""
    if isinstance(part, QuantizedExperts):
        scale = None if part.scale is None else part.scale.flatten()
        return WeightMatrix(part.data.flatten(0, 1), scale, bias, part.packing)
    return WeightMatrix(part.detach().flatten(0, 1), bias=bias)


def part_of(experts: Any) -> range | None:
    """The experts that a rank holds if ranks hold whole ones, else None."""
    first = getattr(experts, "first_expert", None)
    return None if first is None else range(first, first + int(experts.num_experts))


def _merged(modules: Sequence[nn.Module], name: str) -> torch.Tensor:
    """The tensors `name` of `modules` in one; they are, or become, views of it."""
    tensors: list[torch.Tensor] = [getattr(part, name) for part in modules]
    parts = [tensor.detach() for tensor in tensors]
    rows = [part.shape[0] for part in parts]
    if _are_consecutive(parts):
        first = parts[0]
        shape = (sum(rows), *first.shape[1:])
        return first.as_strided(shape, first.stride(), first.storage_offset())
    merged = torch.cat(parts)
    for tensor, view in zip(tensors, torch.split(merged, rows), strict=True):
        tensor.data = view
    return merged


def _are_consecutive(parts: Sequence[torch.Tensor]) -> bool:
    """Whether each part begins where the previous one ends, in the same storage."""
    storage = parts[0].untyped_storage().data_ptr()
    offset = parts[0].storage_offset()
    for part in parts:
        same_storage = part.untyped_storage().data_ptr() == storage
        if not same_storage or part.storage_offset() != offset or not part.is_contiguous():
            return False
        offset += part.numel()
    return True
