"""Finds the 4-bit matrices of a checkpoint by config.json and names, and loads them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from decodescope.variants.machine.memory import return_freed
from decodescope.variants.model.grouped.awq import awq
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
from decodescope.variants.model.grouped.fp4 import fp4
from decodescope.variants.model.grouped.gptq import gptq
from decodescope.variants.model.grouped.matrix import GroupedMatrix
from decodescope.variants.model.grouped.pack_quantized import pack_quantized
from decodescope.variants.model.quantized_weights import QuantizedLinear, QuantizedMatrix, untie
from decodescope.variants.parallel.cuts import Cut, split_of
from decodescope.variants.parallel.shard import cut_quantized

_READERS = (pack_quantized, gptq, awq, fp4)
# Ends of names that say what a matrix is, and hold nothing of it.
_DESCRIPTIONS = ("weight_shape", "weight_g_idx", "g_idx")
_NO_SUCH_SCALES = "its scales are beyond those of the kernels"


def grouped_matrices(checkpoint: PackedCheckpoint, skeleton: Any) -> dict[str, GroupedMatrix]:
    """The matrices of its schemes, by the name of their nn.Linear in `skeleton`. Raises as the
    readers of the formats."""
    matrices = {}
    for key, module in skeleton.named_modules():
        if checkpoint.schemes and type(module) is nn.Linear:
            sizes = module.out_features, module.in_features
            found = (reader(checkpoint, key, *sizes) for reader in _READERS)
            matrix = next((each for each in found if each is not None), None)
            if matrix is not None:
                matrices[key] = matrix
    return matrices


def tensors_of(matrices: Mapping[str, GroupedMatrix]) -> set[str]:
    """The names of all tensors of the matrices."""
    described = {f"{key}.{end}" for key in matrices for end in _DESCRIPTIONS}
    return described.union(*(matrix.tensors for matrix in matrices.values()))


def place_grouped(skeleton: Any, matrices: Mapping[str, GroupedMatrix]) -> None:
    """Put modules without memory in the place of the Linear layers that stay packed."""
    for key, matrix in matrices.items():
        if (packing := matrix.packing) is not None:
            words = torch.empty(matrix.rows, packing.width, dtype=torch.int32, device="meta")
            scale = torch.empty(matrix.rows, device="meta") if packing.format.row_scaled else None
            bias = skeleton.get_submodule(key).bias
            skeleton.set_submodule(key, QuantizedLinear(words, scale, bias, packing))
        untie(skeleton, key)


def load_grouped(
    skeleton: Any, matrices: Mapping[str, GroupedMatrix], read: Callable[[str], torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str]:
    """Fill the modules, one after the other, each from the tensors that `read` reads: of several
    ranks with its part (`shard_model`) of the whole matrix, which is made first.

    Returns the weights that were dequantised, by their names in the model, and in words what was
    done with all matrices.

    Raises:
        ModelError: values that are not what config.json says, or no numbers; names the tensor.
    """
    made: dict[str, torch.Tensor] = {}
    kept: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for key, matrix in matrices.items():
        weight = _load(skeleton, key, matrix, read)
        if weight is None:
            kept[matrix.stored] = kept.get(matrix.stored, 0) + 1
        else:
            made[f"{key}.weight"] = weight
            reason = f"{matrix.stored}: {matrix.reason or _NO_SUCH_SCALES}"
            reasons[reason] = reasons.get(reason, 0) + 1
        # What was read of this matrix lay between the words that are kept.
        return_freed("cpu")
    return made, _in_words(kept, reasons)


def _load(
    skeleton: Any, key: str, matrix: GroupedMatrix, read: Callable[[str], torch.Tensor]
) -> torch.Tensor | None:
    """Fill the module of a matrix; if no kernel reads it, its weight, of a Linear layer again."""
    split, module = split_of(skeleton), skeleton.get_submodule(key)
    tensors = {name: read(name) for name in matrix.tensors}
    packed = matrix.packed(tensors, skeleton.dtype)
    cut = split.cuts.get(f"{key}.weight")
    if packed is not None:
        held = QuantizedMatrix(*packed, matrix.packing)
        if isinstance(cut, Cut):
            cut_quantized(held, cut, split.ranks)
        module.data, module.scale = held.data, held.scale
        return None
    if isinstance(module, QuantizedLinear):
        sizes = module.columns, len(module.data)
        linear = nn.Linear(*sizes, False, "meta", skeleton.dtype)
        linear.bias = module.bias  # type: ignore[assignment]
        skeleton.set_submodule(key, linear)
    weight = matrix.dequantised(tensors, skeleton.dtype)
    return weight if cut is None else cut.of(weight, split.ranks)


def _in_words(kept: Mapping[str, int], reasons: Mapping[str, int]) -> str:
    parts = []
    if kept:
        parts.append(
            f"{sum(kept.values())} of the checkpoint's matrices ({', '.join(sorted(kept))}) are "
            "repacked, codes and scales unchanged; variants other than fused dequantise them for "
            "every product, and are slow"
        )
    if reasons:
        parts.append(
            f"{sum(reasons.values())} of the checkpoint's matrices are dequantised to the run's "
            f"dtype ({'; '.join(sorted(reasons))})"
        )
    return "; ".join(parts)
