"""Formats of 4 bits, and where a row of such a matrix has its codes and scales. Needs no torch.

A weight is scale * (code - zero), or scale * code of E2M1, with a scale for each group of columns:

- int4: integers 0 to 15, zero 8, scales float16. With zero points of their own (asymmetric), a
  group has two float16, the scale and the zero.
- mxfp4: E2M1, scales E8M0 (2^(byte - 127), 255 is NaN) of 32 columns.
- nvfp4: E2M1, scales E4M3 of 16 columns, times a float32 scale of the row.

A row of a matrix is 32-bit words: its codes, eight a word, then its scales, padded to 16 bytes.
Columns are padded to 32. Of 32 columns, word i of four has columns 8 p + 2 i and 8 p + 2 i + 1 as
pair p, its codes 2 p and 2 p + 1. They are at the same place of its lower and its upper half: one
mask takes a pair out as two float16. In this order, a thread's eight codes are those that the
tensor cores want of it (`device/packed_weights.py`), with x as it is.

- int4: bits 4 p to 4 p + 3 of a half.
- E2M1: of pairs 0 and 1, sign and magnitude are those of a float16 (bits 9 to 11 and 15) as they
  are, or after a shift by 8. Pairs 2 and 3 have the bits between; two shifts bring them to where 0
  and 1 are.

Sources: OCP Microscaling Formats Specification 1.0; NVIDIA, "Introducing NVFP4"; the zero points of
AWQ, Lin et al. (arXiv 2306.00978).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

PackedName = Literal["int4", "int4_g64", "int4_g32", "int4_channel", "int4_asym", "mxfp4", "nvfp4"]
Scales = Literal["fp16", "fp16_zero", "e8m0", "e4m3"]
# Elements between two rows, the scales of weights of 4 bits, the columns that share one, and the
# elements between two words of one row's `WeightMatrix.group_scales`.
Layout = tuple[int, Scales | None, int, int]

# Columns that 16 bytes of codes hold: what a thread loads at once.
CHUNK = 32
PER_WORD = 8
WORDS = CHUNK // PER_WORD
_SCALE_BYTES: Mapping[Scales, int] = {"fp16": 2, "fp16_zero": 4, "e8m0": 1, "e4m3": 1}
_WORD_BYTES, _ALIGNED_WORDS = 4, 4
E8M0_BIAS = 127
LONG_GROUP = 64
# Of E8M0: `device/packed_weights.py` makes larger weights infinite.
LARGEST_EXPONENT = 4
# Of each pair in a half: which bits of a code, and by how much they are shifted.
Fields = tuple[tuple[tuple[int, int], ...], ...]
_INT4: Fields = (((15, 0),), ((15, 4),), ((15, 8),), ((15, 12),))
_E2M1: Fields = (
    ((7, 9), (8, 12)),
    ((7, 1), (8, 4)),
    ((1, 8), (14, 11)),
    ((1, 0), (14, 3)),
)


@dataclass(frozen=True, slots=True)
class PackedFormat:
    """`group` is the columns that share a scale, 0: all of a row."""

    name: PackedName
    scales: Scales
    group: int

    @property
    def e2m1(self) -> bool:
        return self.scales in ("e8m0", "e4m3")

    @property
    def row_scaled(self) -> bool:
        """Whether each row has a float32 scale as well."""
        return self.scales == "e4m3"

    @property
    def largest(self) -> float:
        """The largest weight: several tokens are multiplied by float16, of E8M0 with scales of 2^4
        at most (`device/packed_weights.py`). Rounding to integers adds 7.5 % at most. Scales of
        rows multiply finished sums."""
        return inf if self.row_scaled else 6.0 * 2**LARGEST_EXPONENT if self.e2m1 else 6e4

    @property
    def fields(self) -> Fields:
        return _E2M1 if self.e2m1 else _INT4

    def __str__(self) -> str:
        named = PACKED_FORMATS[self.name].group == self.group
        return self.name if named else f"{self.name} in groups of {self.group or 'a row'}"


PACKED_FORMATS: Mapping[PackedName, PackedFormat] = {
    each.name: each
    for each in (
        PackedFormat("int4", "fp16", 128),
        PackedFormat("int4_g64", "fp16", 64),
        PackedFormat("int4_g32", "fp16", 32),
        PackedFormat("int4_channel", "fp16", 0),
        PackedFormat("int4_asym", "fp16_zero", 128),
        PackedFormat("mxfp4", "e8m0", 32),
        PackedFormat("nvfp4", "e4m3", 16),
    )
}


@dataclass(frozen=True, slots=True)
class Packing:
    """How the rows of a matrix of `columns` are stored."""

    format: PackedFormat
    columns: int

    @property
    def padded(self) -> int:
        return -(-self.columns // CHUNK) * CHUNK

    @property
    def group(self) -> int:
        return self.format.group or self.padded

    @property
    def groups(self) -> int:
        return -(-self.padded // self.group)

    @property
    def scales_sums(self) -> bool:
        """Whether products of several tokens multiply finished sums of groups by their scales, and
        not weights (`device/packed_batched.py`)."""
        long = self.group >= self.columns or self.group & -self.group >= LONG_GROUP
        return long and not self.format.e2m1

    @property
    def words(self) -> int:
        """Words of codes."""
        return self.padded // PER_WORD

    @property
    def scale_bytes(self) -> int:
        return self.groups * _SCALE_BYTES[self.format.scales]

    @property
    def width(self) -> int:
        """Words of a row."""
        blocks = -(-self.scale_bytes // (_WORD_BYTES * _ALIGNED_WORDS))
        return self.words + blocks * _ALIGNED_WORDS


def integer_packing(columns: int, group: int, zeros: bool) -> Packing | None:
    """That of integers in groups of so many columns (0: a row), with zero points of their own if
    `zeros`; None if the kernels read no such groups."""
    group = 0 if group >= columns else group
    if group % CHUNK:
        return None
    scales: Scales = "fp16_zero" if zeros else "fp16"
    alike = [each for each in PACKED_FORMATS.values() if each.scales == scales]
    named = (each for each in alike if each.group == group)
    return Packing(next(named, replace(alike[0], group=group)), columns)


def packing_of(format: str, columns: int) -> Packing | None:
    """That of a matrix of so many columns in a format of weights; None if it has not 4 bits."""
    found = next((each for name, each in PACKED_FORMATS.items() if name == format), None)
    return None if found is None else Packing(found, columns)
