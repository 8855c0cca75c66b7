"""Quantises a loaded model in place: FP8 or INT8 weights with one scale for each output channel."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.quantize import NARROW_DTYPES, NarrowFormat, quantized_rows
from decodescope.variants.model.quantized_linear import (
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedMatrix,
    Stored,
    stored_formats,
    weight_tensors,
)
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec

# The modules of a model that the fused kernels run (`steps.fused.model_parts`).
_LAYERS, _HEAD, _TABLE = "model.layers.", "lm_head", "model.embed_tokens"
_SCALE_BYTES = 4
# Elements that are quantised at once: `quantized_rows` takes 8 bytes of memory for each.
_BLOCK = 1 << 23


@dataclass(frozen=True, slots=True)
class Quantization:
    """What of a model is stored in a narrow format: the matrices of its layers; `head`: lm_head as
    well; `embedding`: the embedding table as well. `scaled` off: every scale is 1."""

    format: NarrowFormat
    scaled: bool = True
    head: bool = True
    embedding: bool = False

    @property
    def stored(self) -> Stored:
        """How each of them is stored."""
        return NARROW_DTYPES[self.format], self.scaled


def quantization_of(spec: VariantSpec | None) -> Quantization | None:
    """How a variant stores the weights; None: as they were loaded."""
    if spec is None or spec.weight_format not in NARROW_WEIGHTS:
        return None
    weights = NARROW_WEIGHTS[spec.weight_format]
    return Quantization(weights.elements, weights.scaled, not spec.head16, spec.embedding8)


def is_quantized(model: Any, quantization: Quantization) -> bool:
    """Whether exactly these weights of `model` are stored so."""
    return stored_formats(model) == dict.fromkeys(_paths(model, quantization), quantization.stored)


@torch.no_grad()
def quantize_model(
    name: str,
    model: Any,
    quantization: Quantization,
    say: Callable[[str], object] = lambda stage: None,
) -> None:
    """Replace matrices of `model` by quantised ones, one after the other; each frees its weight.

    A matrix that was loaded in this format stays as it is. If an embedding table is tied to
    lm_head, they share one quantised matrix if both are quantised; otherwise the head gets a
    quantised copy. `say` is called for each layer; `name` is the model's, for errors. After an
    error the matrices before it are quantised, and the model must be loaded again.

    Raises:
        ModelError: a weight that is NaN or infinite, or stored in another narrow format.
    """
    if is_quantized(model, quantization):
        return
    layers = len(model.model.layers)
    for layer, paths in groupby(_paths(model, quantization), _layer):
        what = "embedding and head" if layer is None else f"layer {layer + 1} of {layers}"
        say(f"quantising to {quantization.format}: {what}")
        for path in paths:
            _quantize(name, model, path, quantization)
    if model.device.type == "cuda":
        # Blocks of the old weights fit little else, and would stay reserved.
        torch.cuda.empty_cache()


def quantized_bytes(model: Any, quantization: Quantization | None) -> int:
    """Bytes of the weights of `model`, which may be without memory, once they are quantised."""
    planned = frozenset(_paths(model, quantization) if quantization else ())
    # A tied table may be stored twice: as it is for the embedding, quantised for the head.
    sizes: dict[tuple[int, bool], int] = {}
    for path, module in model.named_modules():
        to_do = path in planned and not isinstance(module, QuantizedMatrix)
        for tensor in weight_tensors(module, recurse=False):
            if to_do and tensor is module.weight:
                sizes[id(tensor), True] = _narrow_bytes(tensor, quantization)
            else:
                sizes[id(tensor), False] = tensor.nbytes
    return sum(sizes.values())


def dequantized_bytes(model: Any, quantization: Quantization | None) -> int:
    """Bytes of the largest matrix that the prefill makes from a quantised one, at a time."""
    planned = frozenset(_paths(model, quantization) if quantization else ())
    sizes = [
        (module.data if isinstance(module, QuantizedLinear) else module.weight).numel()
        for path, module in model.named_modules()
        if isinstance(module, QuantizedLinear) or (path in planned and path != _TABLE)
    ]
    return max(sizes, default=0) * int(model.dtype.itemsize)


def _narrow_bytes(weight: torch.Tensor, quantization: Quantization | None) -> int:
    scaled = quantization is not None and quantization.scaled
    return weight.numel() + (_SCALE_BYTES * weight.shape[0] if scaled else 0)


def _paths(model: Any, quantization: Quantization) -> list[str]:
    """The modules that are stored so: of the layers first, in their order."""
    paths = [
        path
        for path, module in model.named_modules()
        if path.startswith(_LAYERS) and isinstance(module, nn.Linear | QuantizedLinear)
    ]
    return paths + [_TABLE] * quantization.embedding + [_HEAD] * quantization.head


def _layer(path: str) -> int | None:
    return int(path.split(".")[2]) if path.startswith(_LAYERS) else None


def _quantize(name: str, model: Any, path: str, quantization: Quantization) -> None:
    module = model.get_submodule(path)
    if isinstance(module, QuantizedMatrix):
        if module.stored != quantization.stored:
            raise ModelError(
                f"{name}: {path} is stored in {module.data.dtype}, and no longer in the model's "
                f"dtype; it cannot become {quantization.format}"
            )
        return
    weight = module.weight
    data, scale = _narrow(weight, quantization, f"{name}: {path}")
    if not isinstance(module, nn.Embedding):
        model.set_submodule(path, QuantizedLinear(data, scale, module.bias))
        return
    model.set_submodule(path, QuantizedEmbedding(data, scale, weight.dtype))
    head = model.get_submodule(_HEAD)
    if quantization.head and getattr(head, "weight", None) is weight:
        model.set_submodule(_HEAD, QuantizedLinear(data, scale, head.bias))


def _narrow(
    weight: torch.Tensor, quantization: Quantization, where: str
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Elements and scales of `weight` [rows, columns], made a block of rows at a time."""
    rows, columns = weight.shape
    data = torch.empty_like(weight, dtype=NARROW_DTYPES[quantization.format])
    scale = torch.empty(rows, dtype=torch.float32, device=weight.device)
    step = max(1, _BLOCK // columns)
    # A model without memory has no values.
    for first in range(0, 0 if weight.is_meta else rows, step):
        block = slice(first, first + step)
        rows_of = weight[block]
        broken = ~rows_of.isfinite().all(dim=1)
        if bool(broken.any()):
            raise ModelError(
                f"{where}: row {first + int(broken.nonzero()[0])} has NaN or infinite values and "
                f"cannot be stored in {quantization.format}; download the checkpoint again"
            )
        data[block], scales = quantized_rows(rows_of, quantization.format, quantization.scaled)
        if scales is not None:
            scale[block] = scales
    return data, scale if quantization.scaled else None
