"""Matrices of a GGUF file. Blocks lie along the columns of a row.

Q4_0 is read as it is: 18 bytes for 32 columns, a float16 scale and 16 bytes of codes, those of the
first 16 columns in the lower halves. W = (code - 8) * scale. Every other type is dequantised by the
package `gguf`: Q4_K multiplies a scale of 6 bits by a float16 and subtracts a minimum made alike,
which no packing here holds, and Q8_0 has 8 bits in groups.

Source: ggml's quantization blocks; gguf-py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import integer_packing
from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.grouped.matrix import GroupedMatrix, Groups, Tensors

_Q4_0, _GROUP, _SCALE_BYTES = "Q4_0", 32, 2
_FLOATS = ("F32", "F16", "BF16", "F64")


@dataclass(frozen=True, slots=True)
class GgufMatrix(GroupedMatrix):
    kind: str = _Q4_0

    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        stored = tensors[self.scale][rows]
        blocks = stored.view(len(stored), -1, _SCALE_BYTES + _GROUP // 2)
        scales = blocks[..., :_SCALE_BYTES].contiguous().view(torch.float16).squeeze(-1).float()
        codes = blocks[..., _SCALE_BYTES:]
        return Groups(torch.cat((codes & 15, codes >> 4), dim=2).flatten(1), scales)

    def weights(self, tensors: Tensors, rows: slice) -> torch.Tensor:
        stored = tensors[self.scale][rows]
        return dequantised(stored.cpu().numpy(), self.kind).to(stored.device)


def gguf_matrices(
    name: str, skeleton: Any, tensors: Mapping[str, StoredTensor]
) -> dict[str, GroupedMatrix]:
    """The quantised matrices of a GGUF file, by the name of their nn.Linear in `skeleton`.

    Raises:
        ModelError: one of another shape than the file's metadata says; names it.
    """
    matrices: dict[str, GroupedMatrix] = {}
    for key, module in skeleton.named_modules():
        weight = f"{key}.weight"
        if type(module) is not nn.Linear or weight not in tensors:
            continue
        if (kind := tensors[weight].dtype) not in _FLOATS:
            rows, columns = module.out_features, module.in_features
            if (shape := tensors[weight].shape) != (rows, columns):
                raise ModelError(
                    f"{name}: {weight} is {list(shape)} in the weights and {[rows, columns]} by "
                    "its metadata; download the file again"
                )
            packing = integer_packing(columns, _GROUP, zeros=False) if kind == _Q4_0 else None
            reason = "" if packing else "no kernel reads it"
            matrices[key] = GgufMatrix(
                name,
                key,
                rows,
                columns,
                _GROUP,
                (weight,),
                weight,
                f"GGUF {kind}",
                packing,
                reason,
                kind=kind,
            )
    return matrices


def dequantised(stored: np.ndarray[Any, Any], kind: str) -> torch.Tensor:
    """Blocks of the type `kind`, or floats, as float32."""
    from gguf import GGMLQuantizationType, dequantize

    return torch.from_numpy(dequantize(stored, GGMLQuantizationType[kind]))
