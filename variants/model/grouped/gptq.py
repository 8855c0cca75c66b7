"""GPTQ with 4 bits.

`qweight` int32 [columns / 8, rows] has the codes, whose words run down the columns, lowest bits
first; `scales` [groups, rows]; `qzeros` int32 [groups, rows / 8]; `g_idx` [columns], the group of
each column (`desc_act` makes them by an order of activations). W = (code - zero) * scale.
`qzeros` is one less for each zero, subtracted from the words; in the format `gptq_v2` it is not.

Source: GPTQModel's and AutoGPTQ's QuantLinear, and its convert_gptq_v1_to_v2_format.
"""

from dataclasses import dataclass

from decodescope.kernels.host.packing import integer_packing
from decodescope.variants.model.grouped.checkpoint import SCALE_TYPES, PackedCheckpoint
from decodescope.variants.model.grouped.matrix import (
    MIDDLE,
    ROWS_OF_WORD,
    GroupedMatrix,
    Groups,
    Tensors,
    nibbles,
)
from decodescope.variants.model.grouped.schemes import Layout

# One in each code of a word.
_ONES = 0x11111111


@dataclass(frozen=True, slots=True)
class Gptq(GroupedMatrix):
    symmetric: bool = True
    one_less: bool = True

    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        codes = nibbles(tensors[f"{self.key}.qweight"][:, rows].T)[:, : self.columns]
        words = tensors[f"{self.key}.qzeros"]
        zeros = nibbles(words + _ONES if self.one_less else words)[:, rows].T
        if self.symmetric and bool((zeros != MIDDLE).any()):
            raise self.error(
                f"{self.key}.qzeros holds other zero points than {MIDDLE}, and none of its own by "
                "config.json (sym true); use the files of one checkpoint"
            )
        scales = tensors[self.scale][:, rows].T.float()
        return Groups(codes, scales, None if self.symmetric else zeros)


def gptq(checkpoint: PackedCheckpoint, key: str, rows: int, columns: int) -> GroupedMatrix | None:
    """The matrix `key`, None if it is none of this format.

    Raises:
        ModelError: tensors that are not what config.json says; names tensor and field.
    """
    weight, scale, zeros = (f"{key}.{end}" for end in ("qweight", "scales", "qzeros"))
    # Zero points are stored in any case.
    layouts: tuple[Layout, ...] = ("gptq", "gptq_v2")
    scheme = checkpoint.scheme_of(layouts, weight, scale, columns, axis=0, zeros=True)
    if scheme is None or not checkpoint.holds(key, weight, scale):
        return None
    groups, words = scheme.groups(columns), -(-rows // ROWS_OF_WORD)
    field = f"group_size {scheme.group or -1}"
    checkpoint.require(weight, ("I32",), (-(-columns // 8), rows), "bits 4")
    checkpoint.require(scale, SCALE_TYPES, (groups, rows), field)
    checkpoint.require(zeros, ("I32",), (groups, words), field)
    group_of = checkpoint.group_of(f"{key}.g_idx", columns, scheme)
    own_zeros = not scheme.symmetric
    return Gptq(
        checkpoint.model,
        key,
        rows,
        columns,
        scheme.group or columns,
        (weight, scale, zeros),
        scale,
        f"GPTQ int4{' with zero points' if own_zeros else ''}, {field}",
        *checkpoint.packing_or_reason(
            integer_packing(columns, scheme.group, own_zeros), scale, group_of
        ),
        group_of,
        scheme.symmetric,
        scheme.layout == "gptq",
    )
