"""compressed-tensors' `pack-quantized` with 4 bits.

`weight_packed` int32 [rows, columns / 8] has the codes, lowest bits first; `weight_scale` [rows,
groups]; `weight_zero_point` int32 [rows / 8, groups], whose words run down the rows; `weight_shape`
[2]; `weight_g_idx` [columns], the group of each column, if an order of activations made the groups.
W = (code - zero) * scale, and zero is 8 if it is symmetric.

Source: compressed-tensors' PackedQuantizationCompressor.
"""

from dataclasses import dataclass

from decodescope.kernels.host.packing import integer_packing
from decodescope.variants.model.grouped.checkpoint import SCALE_TYPES, PackedCheckpoint
from decodescope.variants.model.grouped.matrix import (
    ROWS_OF_WORD,
    GroupedMatrix,
    Groups,
    Tensors,
    nibbles,
)


@dataclass(frozen=True, slots=True)
class PackQuantized(GroupedMatrix):
    zeros: str | None = None

    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        packed = tensors[f"{self.key}.weight_packed"][rows]
        zeros = None
        if self.zeros is not None:
            zeros = nibbles(tensors[self.zeros].T)[:, rows].T
        codes = nibbles(packed)[:, : self.columns]
        return Groups(codes, tensors[self.scale][rows].float(), zeros)


def pack_quantized(
    checkpoint: PackedCheckpoint, key: str, rows: int, columns: int
) -> GroupedMatrix | None:
    """The matrix `key`, None if it is none of this format.

    Raises:
        ModelError: tensors that are not what config.json says; names tensor and field.
    """
    packed, scale, zeros, shape, g_idx = (
        f"{key}.weight_{end}" for end in ("packed", "scale", "zero_point", "shape", "g_idx")
    )
    scheme = checkpoint.scheme_of(
        ("pack-quantized",),
        packed,
        scale,
        columns,
        zeros=zeros in checkpoint.tensors,
        order=g_idx in checkpoint.tensors,
    )
    if scheme is None or not checkpoint.holds(key, packed, scale):
        return None
    groups = scheme.groups(columns)
    field = f"group_size {scheme.group}" if scheme.group else "strategy channel"
    checkpoint.require(packed, ("I32",), (rows, -(-columns // 8)), "num_bits 4")
    checkpoint.require(scale, SCALE_TYPES, (rows, groups), field)
    checkpoint.require_whole_groups(packed, columns, scheme)
    own_zeros = not scheme.symmetric
    if own_zeros:
        words = -(-rows // ROWS_OF_WORD)
        checkpoint.require(zeros, ("I32",), (words, groups), f"symmetric false, {field}")
    elif zeros in checkpoint.tensors:
        checkpoint.refuse(zeros, "there", "not by config.json (symmetric true)")
    if shape in checkpoint.tensors:
        checkpoint.require(shape, ("I64", "I32"), (2,), "hidden_size, intermediate_size")
        if (found := checkpoint.read(shape).tolist()) != [rows, columns]:
            checkpoint.refuse(shape, str(found), f"{[rows, columns]} by config.json")
    group_of = checkpoint.group_of(g_idx, columns, scheme)
    return PackQuantized(
        checkpoint.model,
        key,
        rows,
        columns,
        scheme.group or columns,
        (packed, scale, *([zeros] if own_zeros else ())),
        scale,
        f"compressed-tensors int4{' with zero points' if own_zeros else ''}, {field}",
        *checkpoint.packing_or_reason(
            integer_packing(columns, scheme.group, own_zeros), scale, group_of
        ),
        group_of,
        zeros if own_zeros else None,
    )
