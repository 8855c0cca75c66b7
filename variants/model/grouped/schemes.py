"""The 4-bit weights that a `quantization_config` describes, without torch.

Sources: compressed-tensors' QuantizationConfig, the exports of NVIDIA ModelOpt, GPTQModel's
QuantizeConfig (AutoGPTQ's is a part of it), AutoAWQ's AwqConfig.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from decodescope.analyzer.modelling.weight_formats import weight_schemes
from decodescope.kernels.host.packing import PackedName, integer_packing

Layout = Literal["pack-quantized", "nvfp4", "mxfp4", "gptq", "gptq_v2", "awq"]
Fields = Mapping[str, Any]

FIELD = "quantization_config"
FORMATS = ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")
METHODS = ("gptq", "awq")
_GROUPS = ("group_size", "q_group_size")
_STRATEGIES = ("group", "channel", "tensor_group")
# Of actorder; "weight" and "static" only change how the codes were found.
_ORDERS = ("group", "dynamic", True)
_FLOAT_GROUPS: Mapping[int, Layout] = {16: "nvfp4", 32: "mxfp4"}
_GPTQ_FORMATS: Mapping[str, Layout] = {"gptq": "gptq", "gptq_v2": "gptq_v2"}
_NVFP4 = "NVFP4"
# Any number of columns that is a multiple of those of every group.
_MANY = 1 << 30
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class PackedScheme:
    """`group` is the columns that share a scale, 0: all of a row. A `symmetric` one has no zero
    points of its own. `order` is the field that says that an order of activations made the groups,
    "" if none does: each column's group is stored then."""

    layout: Layout
    group: int
    symmetric: bool = True
    order: str = ""

    @property
    def format(self) -> PackedName | None:
        """The format whose kernels read it; None if it is dequantised."""
        if self.layout == "nvfp4" or self.layout == "mxfp4":
            return self.layout
        packing = integer_packing(_MANY, self.group, not self.symmetric)
        return None if packing is None else packing.format.name

    @property
    def codes(self) -> str:
        """The safetensors name of the type of its codes."""
        return "U8" if self.layout in _FLOAT_GROUPS.values() else "I32"

    def groups(self, columns: int) -> int:
        return -(-columns // self.group) if self.group else 1

    def has_rows_of(self, columns: int) -> bool:
        """Whether rows of so many columns have such groups: only GPTQ's last one may be shorter."""
        whole = not self.group or columns % self.group == 0
        return whole or self.layout in _GPTQ_FORMATS.values()


def packed_schemes(fields: Fields) -> tuple[PackedScheme, ...]:
    """The schemes of 4 bits in a `quantization_config` that `packed_reasons` does not refuse."""
    method = fields.get("quant_method")
    if method == "modelopt":
        named = str(fields.get("quant_algo")).upper() == _NVFP4
        return (PackedScheme("nvfp4", 16),) if named else ()
    if method in METHODS:
        schemes = [_scheme_of_part(part) for _, part in _parts(fields)]
    else:
        packed = [each for each in weight_schemes(fields) if each.get("num_bits", 8) == 4]
        schemes = [_scheme(weights) for weights in packed]
    return tuple(dict.fromkeys(schemes))


def packed_reasons(fields: Fields) -> Iterator[tuple[str, object]]:
    """The fields, by their paths, because of which weights of GPTQ or AWQ are not loaded as they
    are."""
    for path, part in _parts(fields):
        bits, group = _named(part, "bits", "w_bit"), _named(part, *_GROUPS)
        if (value := part.get(bits, 4)) != 4:
            yield f"{path}.{bits}", value
        if (value := part.get(group, 128)) < 1 and value != -1:
            yield f"{path}.{group}", value
        form = part.get("checkpoint_format") or "gptq"
        if part["quant_method"] == "gptq" and form not in _GPTQ_FORMATS:
            yield f"{path}.checkpoint_format", form
        if part["quant_method"] == "awq":
            if shown(version := part.get("version", "gemm")) != "gemm":
                yield f"{path}.version", version
            if not part.get("zero_point", True):
                yield f"{path}.zero_point", False


def scheme_reasons(weights: Fields) -> Iterator[str]:
    """The fields because of which 4-bit weights of compressed-tensors are not read so."""
    group = weights.get("group_size")
    if weights.get("type", "int") == "float" and group not in _FLOAT_GROUPS:
        yield "group_size"
    if (strategy := weights.get("strategy")) is not None and strategy not in _STRATEGIES:
        yield "strategy"
    if group is not None and group < 1 and group != -1:
        yield "group_size"


def _parts(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """The fields of GPTQ or AWQ and their paths: those of most modules, and of each pattern of
    `dynamic` that changes some ("-:": its modules are not quantised)."""
    yield FIELD, fields
    for pattern, changed in (fields.get("dynamic") or {}).items():
        if not pattern.startswith("-:"):
            yield f"{FIELD}.dynamic.{brief(pattern)}", {**fields, **(changed or {})}


def _scheme_of_part(fields: Fields) -> PackedScheme:
    group = max(fields.get(_named(fields, *_GROUPS), 128), 0)
    if fields["quant_method"] == "awq":
        return PackedScheme("awq", group, symmetric=False)
    layout = _GPTQ_FORMATS[fields.get("checkpoint_format") or "gptq"]
    order = "desc_act true" if fields.get("desc_act") else ""
    return PackedScheme(layout, group, fields.get("sym", True) is True, order)


def _scheme(weights: Fields) -> PackedScheme:
    group = max(weights.get("group_size") or 0, 0)
    if weights.get("type") == "float":
        return PackedScheme(_FLOAT_GROUPS[group], group)
    if weights.get("strategy") == "channel":
        group = 0
    order = f"actorder {named}" if (named := weights.get("actorder")) in _ORDERS else ""
    return PackedScheme("pack-quantized", group, weights.get("symmetric", True) is True, order)


def _named(fields: Fields, name: str, other: str) -> str:
    """The name that a field has in a checkpoint, of two."""
    return other if other in fields and name not in fields else name


def brief(text: str) -> str:
    """In one line, its first characters."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def shown(value: object) -> str:
    """A value of config.json in a message: in one line and lower case, its first characters."""
    return "missing" if value is None else brief(str(value).lower())
