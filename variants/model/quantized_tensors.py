"""The 8-bit matrices of a checkpoint: which tensors they are, and whether their values are usable.

A Linear layer `name` is stored as `name.weight` in F8_E4M3, F8_E5M2 or I8 and a scale beside it,
W[r, k] = weight[r, k] * scale[r]. A scale of a whole matrix is repeated for its rows. Sources:
compressed-tensors' NaiveQuantizationCompressor; the `weight_scale_inv` of transformers'
FineGrainedFP8Config multiplies too, in spite of its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.checkpoint import (
    FLOAT_TYPES,
    NARROW_TYPES,
    SCALES,
    Shape,
    StoredTensor,
)

# Ends of tensor names that mean more than codes times a scale.
_OTHER_METHODS = {
    "weight_packed": "packed weights",
    "qweight": "packed weights",
    "weight_zero_point": "zero points",
    "qzeros": "zero points",
    "weight_g_idx": "columns in groups",
    "weight_scale_2": "scales of scales",
    "weight_global_scale": "scales of scales",
    "pre_quant_scale": "scales of inputs",
}
# Scales of activations and of K and V, which are computed in the run's dtype.
_ACTIVATION_SCALES = (
    "input_scale",
    "input_global_scale",
    "activation_scale",
    "input_scale_ub",
    "input_zero_point",
    "output_scale",
    "q_scale",
    "k_scale",
    "v_scale",
    "kv_scale",
    "prob_output_scale",
)
_CODE_BITS = 0x7F
_LARGEST_CODE = {torch.float8_e4m3fn: 0x7E, torch.float8_e5m2: 0x7B}


@dataclass(frozen=True, slots=True)
class NarrowMatrix:
    """An 8-bit matrix: the names of its elements and of their scale (None: every scale is 1)."""

    rows: int
    columns: int
    dtype: torch.dtype
    data: str
    scale: str | None


def is_activation_scale(name: str) -> bool:
    """Whether the tensor scales activations, or K and V."""
    return name.rpartition(".")[2] in _ACTIVATION_SCALES


def narrow_matrices(
    name: str, skeleton: Any, tensors: Mapping[str, StoredTensor], declared: bool
) -> dict[str, NarrowMatrix]:
    """The 8-bit matrices of a checkpoint, by the name of their nn.Linear in `skeleton`.

    `name` is the model's, for the message; `tensors` are those of `model_tensors`. FP8 weights
    without scales are a plain cast, unless config.json has `declared` that they are quantized.

    Raises:
        ModelError: weights or scales of other types, shapes or methods, weights without scales
            beside others with them, scales without weights; names the first.
    """
    for stored in tensors:
        if method := _OTHER_METHODS.get(stored.rpartition(".")[2]):
            raise _refused(name, f"{stored} means {method}")
    linears = {key: module for key, module in skeleton.named_modules() if type(module) is nn.Linear}
    scaled = declared or any(stored.endswith(SCALES) for stored in tensors)
    matrices = {
        key: _matrix(name, key, module, tensors, scaled)
        for key, module in linears.items()
        if f"{key}.weight" in tensors and tensors[f"{key}.weight"].dtype in NARROW_TYPES
    }
    used = {matrix.scale for matrix in matrices.values()}
    for stored in tensors:
        if stored.endswith(SCALES) and stored not in used:
            weight = f"{stored.rpartition('.')[0]}.weight"
            dtype = tensors[weight].dtype if weight in tensors else "not there"
            if dtype in NARROW_TYPES:
                raise _refused(name, f"{weight} is of no Linear layer that config.json describes")
            raise _refused(name, f"{stored} scales {weight}, which is {dtype}")
    return matrices


def _matrix(
    name: str, key: str, module: nn.Linear, tensors: Mapping[str, StoredTensor], scaled: bool
) -> NarrowMatrix:
    weight = tensors[f"{key}.weight"]
    rows, columns = module.out_features, module.in_features
    if weight.shape != (rows, columns):
        raise ModelError(
            f"{name}: config.json and the weights are of different models: {key}.weight is "
            f"{list(weight.shape)} in the weights and {[rows, columns]} by config.json; use the "
            "files of one checkpoint"
        )
    scales = [f"{key}.{end}" for end in SCALES if f"{key}.{end}" in tensors]
    if len(scales) > 1:
        raise _refused(name, f"{key} has both {' and '.join(SCALES)}")
    if not scales and (scaled or weight.dtype == "I8"):
        raise ModelError(
            f"{name}: {key}.weight is {weight.dtype}, but the checkpoint lacks its scale "
            f"({key}.{SCALES[0]}); download or save it again"
        )
    shapes: tuple[Shape, ...] = ((), (1,), (1, 1), (rows,), (rows, 1))
    for scale in scales:
        if tensors[scale].dtype not in FLOAT_TYPES:
            raise _refused(name, f"{scale} is {tensors[scale].dtype}")
        if tensors[scale].shape not in shapes:
            raise _refused(name, f"{scale} is {list(tensors[scale].shape)} for {rows} rows")
    dtype = NARROW_TYPES[weight.dtype]
    return NarrowMatrix(rows, columns, dtype, f"{key}.weight", scales[0] if scales else None)


def _refused(name: str, reason: str) -> ModelError:
    return ModelError(
        f"{name}: {reason}; only F8_E4M3, F8_E5M2 and I8 weights of Linear layers, with one scale "
        "for each row or matrix, and the formats of 4 bits that config.json names are read as they "
        "are; choose such a checkpoint"
    )


def row_scales(name: str, key: str, stored: torch.Tensor, rows: int) -> torch.Tensor:
    """The scales of the tensor `key` as the kernels read them: float32 [rows].

    Raises:
        ModelError: a scale that is zero, negative, NaN or infinite; names its row.
    """
    scale = stored.reshape(-1).float()
    bad = ~(scale.isfinite() & (scale > 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ModelError(
            f"{name}: the scale in row {row} of {key} is {scale[row].item():g} "
            f"({int(bad.sum())} of {len(scale)} are no positive finite numbers); download or save "
            "the checkpoint again"
        )
    return scale.expand(rows).contiguous()


def require_usable(
    name: str, key: str, data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype
) -> None:
    """Check that every weight of an 8-bit matrix is a finite number, also as `dtype`.

    Takes a byte of temporary memory for each element.

    Raises:
        ModelError: a code that is NaN or infinite, or a weight that `dtype` cannot hold.
    """
    if not data.numel():
        return
    if data.dtype == torch.int8:
        low, high = data.aminmax(dim=1)
        largest = torch.maximum(high.float(), -low.float())
    else:
        # Without its sign, a larger code is a larger number; infinity and NaN are the largest.
        codes = (data.view(torch.uint8) & _CODE_BITS).amax(dim=1)
        bad = codes > _LARGEST_CODE[data.dtype]
        if bool(bad.any()):
            raise ModelError(
                f"{name}: NaN or infinite codes in {int(bad.sum())} rows of {key}, the first in "
                f"row {int(bad.nonzero()[0])}; download or save the checkpoint again"
            )
        largest = codes.view(data.dtype).float()
    if scale is not None:
        largest = largest * scale
    most = torch.finfo(dtype).max
    if not bool((largest <= most).all()):
        row = int(largest.argmax())
        raise ModelError(
            f"{name}: row {row} of {key} times its scale is {largest[row].item():g}, beyond "
            f"{str(dtype).removeprefix('torch.')} ({most:g}); choose another --dtype, or download "
            "the checkpoint again"
        )
