"""Which matrices of a checkpoint have 4 bits, by config.json and the names of their tensors."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.grouped.awq import awq
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
from decodescope.variants.model.grouped.fp4 import fp4
from decodescope.variants.model.grouped.gptq import gptq
from decodescope.variants.model.grouped.matrix import GroupedMatrix
from decodescope.variants.model.grouped.pack_quantized import pack_quantized
from decodescope.variants.model.grouped.schemes import PackedScheme

_READERS = (pack_quantized, gptq, awq, fp4)
# Ends of names that say what a matrix is, and hold nothing of it.
_DESCRIPTIONS = ("weight_shape", "weight_g_idx", "g_idx")


def grouped_matrices(
    name: str,
    skeleton: Any,
    tensors: Mapping[str, StoredTensor],
    schemes: tuple[PackedScheme, ...],
    read: Callable[[str], torch.Tensor],
) -> dict[str, GroupedMatrix]:
    """The matrices of `schemes`, by the name of their nn.Linear in `skeleton`; `read` reads a
    tensor. Raises as the readers of the formats."""
    checkpoint = PackedCheckpoint(name, tensors, schemes, read)
    matrices = {}
    for key, module in skeleton.named_modules():
        if schemes and type(module) is nn.Linear:
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
