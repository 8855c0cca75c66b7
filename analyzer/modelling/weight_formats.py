"""How a matrix of weights is stored: the formats by name, and those that a config.json names.

Bytes of a matrix [rows, columns], rows being output channels: rows * columns * bits / 8, and one
scale (and zero point, if any) for each block of `block_rows` x `block_columns`; 0 stands for all
rows or all columns.

Sources of `quantization_config`: transformers' quantization configurations (mxfp4, fp8, awq, gptq,
bitsandbytes), those of compressed-tensors, NVIDIA ModelOpt and AMD Quark.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config_fields import shown
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.text.numbers import is_integer
from decodescope.analyzer.text.plain import plain_line

Compute = Literal["bf16", "fp16", "fp32", "fp8", "fp4"]
_GROUP = re.compile(r"(?P<name>.+?)[-_:]g(?P<group>[0-9]{1,6})$")
_MAX_SHOWN = 40
_Config = Mapping[str, Any]


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
    replace(_INT4, name="int4-asym", zero_bits=16),
    replace(_INT4, name="int4-channel", block_columns=0),
    replace(_INT4, name="awq", zero_bits=4),
    replace(_INT4, name="gptq", zero_bits=4),
    WeightFormat("nf4", 4, scale_bytes=4, block_columns=64),
    WeightFormat("mxfp4", 4, scale_bytes=1, block_columns=32, compute="fp4"),
    WeightFormat("nvfp4", 4, scale_bytes=1, block_columns=16, compute="fp4"),
)
FORMATS: Mapping[str, WeightFormat] = {each.name: each for each in _ALL}
_OTHER_NAMES = {
    "bf16": ("bfloat16",),
    "fp16": ("float16",),
    "fp32": ("float32",),
    "fp8": ("fp8-e4m3", "fp8-e5m2", "fp8-channel", "w8a8", "w8a8-fp8", "w8a16-fp8"),
    "fp8-block": ("fp8-block128",),
    "int8": ("w8a16", "w8a8-int8"),
    "int4": ("w4a16", "w4a8"),
    "nvfp4": ("fp4",),
}
_ALIASES = {alias: name for name, aliases in _OTHER_NAMES.items() for alias in aliases}
# The formats of ModelOpt's `quant_algo`.
_MODELOPT = {
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_AWQ": "int4",
    "INT4_AWQ": "int4",
}


def weight_format(text: str) -> WeightFormat:
    """The format of this name, as "fp8", "int4" or, with groups of 64 inputs, "int4-g64".

    Raises:
        InputError: no such format, or one whose scales have no groups.
    """
    name, group = text.strip().lower().replace("_", "-"), 0
    matched = _GROUP.match(name)
    if matched is not None:
        name, group = matched["name"], int(matched["group"])
    plain = FORMATS.get(_ALIASES.get(name, name))
    if plain is None:
        raise InputError(
            f"weights {plain_line(text)[:_MAX_SHOWN]!r}: no such format; known are "
            f"{', '.join(FORMATS)}, and int4-g64 for groups of 64"
        )
    if matched is None:
        return plain
    if group < 1 or plain.block_rows != 1 or not plain.block_columns:
        raise InputError(
            f"weights {plain_line(text)[:_MAX_SHOWN]!r}: {plain.name} has no such groups; write "
            f"{plain.name}"
        )
    return replace(plain, name=f"{plain.name}-g{group}", block_columns=group)


def stored_format(shape: ModelShape, config: _Config) -> WeightFormat:
    """The format of the matrices that a `quantization_config` describes.

    Raises:
        InputError: a method or a format that is not known.
    """
    method = config.get("quant_method") or ("modelopt" if "quant_algo" in config else None)
    reader = _READERS.get(method) if isinstance(method, str) else None
    matrices = None if reader is None else reader(config)
    if matrices is None:
        raise InputError(
            f"{shape.source}: weights quantised by {shown(method)} in a format that is not known "
            f"(quantization_config {shown(dict(config))}); say the format with --weights"
        )
    return matrices


def _fp8(config: _Config) -> WeightFormat | None:
    block = config.get("weight_block_size")
    if block is None:
        return FORMATS["fp8-tensor"]
    if not isinstance(block, list) or len(block) != 2 or not all(map(_is_size, block)):
        return None
    rows, columns = block
    return replace(FORMATS["fp8-block"], block_rows=rows, block_columns=columns)


def _grouped4(config: _Config) -> WeightFormat | None:
    """AWQ and GPTQ: `bits`, `group_size` (-1: one for each channel) and zero points."""
    bits = config.get("bits", config.get("w_bit", 4))
    group = config.get("group_size", config.get("q_group_size", 128))
    symmetric = config.get("sym") is True or config.get("zero_point") is False
    return _integers(bits, group, 0 if symmetric or not _is_size(bits) else bits)


def _integers(bits: Any, group: Any, zero_bits: Any) -> WeightFormat | None:
    if not _is_size(bits) or bits not in (2, 3, 4, 8) or not is_integer(group):
        return None
    name = f"int{bits}" if group < 1 else f"int{bits}-g{group}"
    return WeightFormat(name, bits, 2, block_columns=max(group, 0), zero_bits=zero_bits)


def _bitsandbytes(config: _Config) -> WeightFormat | None:
    if config.get("load_in_8bit"):
        return FORMATS["int8"]
    return FORMATS["nf4"] if config.get("load_in_4bit") else None


def _modelopt(config: _Config) -> WeightFormat | None:
    return FORMATS.get(_MODELOPT.get(str(config.get("quant_algo") or "").upper(), ""))


def config_groups(config: _Config) -> list[dict[str, Any]]:
    """The groups of a `quantization_config` of compressed-tensors."""
    groups = config.get("config_groups")
    return [
        group
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict)
    ]


def weight_schemes(config: _Config) -> list[dict[str, Any]]:
    """How each of these groups stores its weights."""
    parts = [group.get("weights") for group in config_groups(config)]
    return [part for part in parts if isinstance(part, dict)]


def _compressed_tensors(config: _Config) -> WeightFormat | None:
    schemes = weight_schemes(config)
    if not schemes or any(scheme != schemes[0] for scheme in schemes):
        return None
    return _scheme(schemes[0])


def _scheme(scheme: _Config) -> WeightFormat | None:
    bits, kind, group = scheme.get("num_bits"), scheme.get("type"), scheme.get("group_size")
    if kind == "float" and bits == 8:
        if scheme.get("strategy") == "block":
            return _fp8({"weight_block_size": scheme.get("block_structure")})
        return FORMATS["fp8-tensor" if scheme.get("strategy") == "tensor" else "fp8"]
    if kind == "float" and bits == 4:
        return FORMATS["mxfp4" if group == 32 else "nvfp4"]
    if kind == "int":
        return _integers(
            bits, 0 if group is None else group, 0 if scheme.get("symmetric", True) else 4
        )
    return None


def _quark(config: _Config) -> WeightFormat | None:
    outer = config.get("global_quant_config")
    weight = outer.get("weight") if isinstance(outer, dict) else None
    if isinstance(weight, list):
        weight = weight[0] if weight else None
    if not isinstance(weight, dict):
        return None
    dtype, scheme = weight.get("dtype"), weight.get("qscheme")
    if dtype == "fp4":
        return FORMATS["mxfp4"]
    if dtype in ("fp8_e4m3", "fp8_e5m2"):
        return FORMATS["fp8-tensor" if scheme == "per_tensor" else "fp8"]
    return FORMATS["int4"] if dtype in ("int4", "uint4") else None


def _is_size(value: object) -> bool:
    return is_integer(value) and value > 0


_READERS: Mapping[str, Callable[[_Config], WeightFormat | None]] = {
    "mxfp4": lambda config: FORMATS["mxfp4"],
    "fp8": _fp8,
    "fbgemm_fp8": lambda config: FORMATS["fp8"],
    "awq": _grouped4,
    "gptq": _grouped4,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "quark": _quark,
}
