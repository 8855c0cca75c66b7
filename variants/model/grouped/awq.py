"""AWQ's version `gemm`.

`qweight` int32 [columns, rows / 8] has the codes of eight rows in a word, from the lowest bits on
those of rows 0, 2, 4, 6, 1, 3, 5 and 7; `qzeros` int32 [groups, rows / 8] likewise; `scales`
[groups, rows]. W = (code - zero) * scale.

Source: AutoAWQ's WQLinear_GEMM.
"""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.packing import integer_packing
from decodescope.variants.model.grouped.checkpoint import SCALE_TYPES, PackedCheckpoint
from decodescope.variants.model.grouped.matrix import (
    ROWS_OF_WORD,
    GroupedMatrix,
    Groups,
    Tensors,
    nibbles,
)

# Where in a word each of the eight rows is.
_PLACE = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True, slots=True)
class Awq(GroupedMatrix):
    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        words = slice(rows.start // ROWS_OF_WORD, rows.stop // ROWS_OF_WORD)
        codes, zeros = (
            _in_order(tensors[f"{self.key}.{end}"][:, words]) for end in ("qweight", "qzeros")
        )
        return Groups(codes, tensors[self.scale][:, rows].T.float(), zeros)


def _in_order(words: torch.Tensor) -> torch.Tensor:
    """The codes of words int32 [n, rows / 8]: uint8 [rows, n]."""
    codes = nibbles(words)
    return codes.view(len(codes), -1, ROWS_OF_WORD)[..., _PLACE].flatten(1).T


def awq(checkpoint: PackedCheckpoint, key: str, rows: int, columns: int) -> GroupedMatrix | None:
    """The matrix `key`, None if it is none of this format.

    Raises:
        ModelError: tensors that are not what config.json says; names tensor and field.
    """
    weight, scale, zeros = (f"{key}.{end}" for end in ("qweight", "scales", "qzeros"))
    scheme = checkpoint.scheme_of(("awq",), weight, scale, columns, axis=0)
    if scheme is None or not checkpoint.holds(key, weight, scale):
        return None
    groups, words = scheme.groups(columns), rows // ROWS_OF_WORD
    field = f"group_size {scheme.group or -1}"
    if rows % ROWS_OF_WORD:
        checkpoint.refuse(weight, f"of {rows} rows", "of words of eight rows (version gemm)")
    checkpoint.require(weight, ("I32",), (columns, words), "bits 4")
    checkpoint.require(scale, SCALE_TYPES, (groups, rows), field)
    checkpoint.require(zeros, ("I32",), (groups, words), f"zero_point true, {field}")
    checkpoint.require_whole_groups(weight, columns, scheme)
    return Awq(
        checkpoint.model,
        key,
        rows,
        columns,
        scheme.group or columns,
        (weight, scale, zeros),
        scale,
        f"AWQ int4 with zero points, {field}",
        *checkpoint.packing_or_reason(integer_packing(columns, scheme.group, True), scale),
    )
