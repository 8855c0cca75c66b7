"""Quantises the weights of a model in place, to a format of 8 or 4 bits.

The router of a mixture of experts stays as it is: it is tiny, and decides.
"""

from collections.abc import Callable
from copy import deepcopy
from itertools import groupby
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import packing_of
from decodescope.kernels.host.weights import NARROW_DTYPES, ByteFormat, NarrowFormat, quantized_rows
from decodescope.variants.machine.memory import return_freed
from decodescope.variants.model.quantized_weights import (
    Quantization,
    QuantizedEmbedding,
    QuantizedExperts,
    QuantizedLinear,
    QuantizedMatrix,
    quantized_formats,
    stacked_experts,
    weight_tensors,
)
from decodescope.variants.parallel.cuts import split_of

# Elements that are quantised at once: `quantized_rows` takes 8 bytes of memory for each.
_BLOCK = 1 << 23
# The modules of a model that the fused kernels run (`steps.fused.model_parts`).
_LAYERS, _HEAD, _TABLE = "model.layers.", "lm_head", "model.embed_tokens"


def is_quantized(model: Any, quantization: Quantization) -> bool:
    """Whether exactly these weights of `model` are stored so."""
    return quantized_formats(model) == {
        path: _how(path, quantization).stored for path in _paths(model, quantization)
    }


@torch.no_grad()
def quantize_model(
    name: str,
    model: Any,
    quantization: Quantization,
    say: Callable[[str], object] = lambda stage: None,
) -> None:
    """Replace matrices of `model` by quantised ones, one after the other; each frees its weight.

    A matrix that was loaded in this format stays as it is. If an embedding table is tied to
    lm_head, they share one quantised matrix if both have its format; otherwise the head gets a
    quantised copy. `say` is called for each layer; `name` is the model's, for errors. After an
    error the matrices before it are quantised, and the model must be loaded again.

    Raises:
        ModelError: a weight that is NaN or infinite, or stored in another narrow format.
    """
    if is_quantized(model, quantization):
        return
    layers = len(model.model.layers)
    for layer, paths in groupby(_paths(model, quantization), _layer):
        place = "embedding and head" if layer is None else f"layer {layer + 1} of {layers}"
        say(f"quantising to {quantization.format}: {place}")
        for path in paths:
            _quantize(name, model, path, quantization)
    # Blocks of the old weights fit little else, and would stay reserved.
    return_freed(model.device.type)


def planned_weights(name: str, model: Any, quantization: Quantization) -> Any:
    """A copy of `model` without memory, quantised. Raises as `quantize_model`."""
    memory = (*weight_tensors(model), *model.buffers())
    planned = deepcopy(model, {id(tensor): _without_memory(tensor) for tensor in memory})
    quantize_model(name, planned, quantization)
    return planned


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    empty = tensor.to("meta")
    return nn.Parameter(empty, False) if isinstance(tensor, nn.Parameter) else empty


def _paths(model: Any, quantization: Quantization) -> list[str]:
    """The matrices that are stored so: of the layers first, in their order."""
    paths = []
    for path, module in model.named_modules():
        if path.startswith(_LAYERS):
            if isinstance(module, nn.Linear | QuantizedLinear | QuantizedExperts):
                paths.append(path)
            paths += [f"{path}.{name}" for name in stacked_experts(module)]
    return paths + [_TABLE] * quantization.embedding + [_HEAD] * quantization.head


def _how(path: str, quantization: Quantization) -> Quantization:
    return quantization.of_table if path == _TABLE else quantization


def _layer(path: str) -> int | None:
    return int(path.split(".")[2]) if path.startswith(_LAYERS) else None


def _quantize(name: str, model: Any, path: str, quantization: Quantization) -> None:
    parent, _, leaf = path.rpartition(".")
    owner = model.get_submodule(parent)
    part, how = getattr(owner, leaf), _how(path, quantization)
    if isinstance(part, QuantizedMatrix):
        if part.stored != how.stored:
            raise ModelError(
                f"{name}: {path} is stored in {part.stored[0]}, and no longer in the model's "
                f"dtype; it cannot become {how.format}"
            )
        return
    weight = part if isinstance(part, torch.Tensor) else part.weight
    key = path if weight is part else f"{path}.weight"
    in_part = split_of(model).cuts_columns(key, weight.dim())
    data, scale = _narrow_rows(weight, how.format, how.scaled, f"{name}: {path}", in_part)
    packing = packing_of(how.format, int(weight.shape[-1]))
    if weight is part:
        delattr(owner, leaf)
        setattr(owner, leaf, QuantizedExperts(data, scale, weight.dtype, packing))
        return
    if not isinstance(part, nn.Embedding):
        setattr(owner, leaf, QuantizedLinear(data, scale, part.bias, packing))
        return
    factor = getattr(part, "scalar_embed_scale", None)
    setattr(owner, leaf, QuantizedEmbedding(data, scale, weight.dtype, factor))
    head = model.get_submodule(_HEAD)
    if not quantization.head or how != quantization:
        return
    if getattr(head, "weight", None) is weight:
        model.set_submodule(_HEAD, QuantizedLinear(data, scale, head.bias))
    elif split_of(model).tied:
        first = head.weight.storage_offset() // weight.shape[1]
        rows = slice(first, first + len(head.weight))
        scales = None if scale is None else scale[rows]
        model.set_submodule(_HEAD, QuantizedLinear(data[rows], scales, head.bias))


def _narrow_rows(
    weight: torch.Tensor, format: NarrowFormat, scaled: bool, where: str, in_part: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Elements and scales of `weight` [..., rows, columns], made a block of rows at a time. If
    ranks hold parts of its rows, scales are those of whole rows."""
    matrix = weight.flatten(0, -2)
    rows, columns = matrix.shape
    packing = packing_of(format, columns)
    scaled_rows = scaled if packing is None else packing.format.row_scaled
    if in_part and packing is not None and columns % (packing.format.group or columns + 1):
        raise ModelError(
            f"{where}: {columns} columns a rank are not whole groups of {packing.format}; choose "
            "another --tp, or a format of 8 bits"
        )
    largest = _largest_of_ranks(matrix) if in_part and not weight.is_meta else None
    width = columns if packing is None else packing.width
    dtype = torch.int32 if packing is not None else NARROW_DTYPES[cast(ByteFormat, format)]
    data = matrix.new_empty((rows, width), dtype=dtype)
    scale = torch.empty(rows, dtype=torch.float32, device=weight.device)
    step = max(1, _BLOCK // columns)
    # A model without memory has no values.
    for first in range(0, 0 if weight.is_meta else rows, step):
        block = slice(first, first + step)
        rows_of = matrix[block]
        broken = ~rows_of.isfinite().all(dim=1)
        if bool(broken.any()):
            raise ModelError(
                f"{where}: row {first + int(broken.nonzero()[0])} has NaN or infinite values and "
                f"cannot be stored in {format}; download the checkpoint again"
            )
        try:
            data[block], scales = quantized_rows(
                rows_of,
                format,
                scaled,
                None if largest is None else largest[block],
            )
        except ValueError as error:
            raise ModelError(
                f"{where}: from row {first} on, {error}; choose a format of 8 bits"
            ) from error
        if scales is not None:
            scale[block] = scales
    shape = weight.shape[:-1]
    return data.view(*shape, width), scale.view(shape) if scaled_rows else None


def _largest_of_ranks(matrix: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each row, of which every rank holds other columns; float32."""
    low, high = matrix.aminmax(dim=1)
    largest = torch.maximum(high, -low).float()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest
