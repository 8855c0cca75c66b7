"""How a matrix of weights is stored: the bits of an element, and who shares a scale.

Bytes of a matrix [rows, columns], rows being output channels: rows * columns * bits / 8, and one
scale (and zero point, if any) for each block of `block_rows` x `block_columns`; 0 stands for all
rows or all columns.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_line

Compute = Literal["bf16", "fp16", "fp32", "fp8"]

_GROUP = re.compile(r"(?P<name>.+?)[-_:]g(?P<group>[0-9]{1,6})$")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One format. `compute` is the dtype of the fastest matrix units that can take such weights;
    `scale_bytes` 0 means that there are no scales."""

    name: str
    bits: int
    scale_bytes: int = 0
    block_rows: int = 1
    block_columns: int = 0
    zero_bits: int = 0
    compute: Compute = "bf16"

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of `rows` output channels and `columns` inputs, with its scales."""
        scales = _blocks(rows, self.block_rows) * _blocks(columns, self.block_columns)
        bits = rows * columns * self.bits + scales * (8 * self.scale_bytes + self.zero_bits)
        return -(-bits // 8)


def _blocks(size: int, block: int) -> int:
    return -(-size // block) if block else 1


_FP8 = WeightFormat("fp8", 8, scale_bytes=4, compute="fp8")
_INT8 = WeightFormat("int8", 8, scale_bytes=4)
_INT4 = WeightFormat("int4", 4, scale_bytes=2, block_columns=128)
_ALL = (
    WeightFormat("bf16", 16),
    WeightFormat("fp16", 16, compute="fp16"),
    WeightFormat("fp32", 32, compute="fp32"),
    _FP8,
    replace(_FP8, name="fp8-tensor", block_rows=0),
    replace(_FP8, name="fp8-block", block_rows=128, block_columns=128),
    replace(_FP8, name="mxfp8", scale_bytes=1, block_columns=32),
    _INT8,
    _INT4,
    replace(_INT4, name="awq", zero_bits=4),
    replace(_INT4, name="gptq", zero_bits=4),
    WeightFormat("nf4", 4, scale_bytes=4, block_columns=64),
    WeightFormat("mxfp4", 4, scale_bytes=1, block_columns=32, compute="fp8"),
    WeightFormat("nvfp4", 4, scale_bytes=1, block_columns=16, compute="fp8"),
)
FORMATS: Mapping[str, WeightFormat] = MappingProxyType({one.name: one for one in _ALL})
_ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8-e4m3": "fp8", "fp8-e5m2": "fp8",
    "fp8-channel": "fp8", "w8a8": "fp8", "w8a8-fp8": "fp8", "w8a16-fp8": "fp8",
    "fp8-block128": "fp8-block", "w8a16": "int8", "w8a8-int8": "int8", "w4a16": "int4",
    "w4a8": "int4", "fp4": "nvfp4",
}  # fmt: skip


def weight_format(text: str) -> WeightFormat:
    """The format of this name, as "fp8", "int4" or, with groups of 64 inputs, "int4-g64".

    Raises:
        InputError: no such format, or one whose scales have no groups.
    """
    name, group = text.strip().lower().replace("_", "-"), 0
    matched = _GROUP.match(name)
    if matched is not None:
        name, group = matched["name"], int(matched["group"])
    found = FORMATS.get(_ALIASES.get(name, name))
    if found is None:
        raise InputError(
            f"weights {plain_line(text)[:_MAX_SHOWN]!r}: no such format; known are "
            f"{', '.join(FORMATS)}, and int4-g64 for groups of 64"
        )
    if matched is None:
        return found
    if group < 1 or found.block_rows != 1 or not found.block_columns:
        raise InputError(
            f"weights {plain_line(text)[:_MAX_SHOWN]!r}: {found.name} has no such groups; write "
            f"{found.name}"
        )
    return replace(found, name=f"{found.name}-g{group}", block_columns=group)
