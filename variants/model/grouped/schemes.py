"""The 4-bit weights that a `quantization_config` describes, without torch.

Sources: compressed-tensors' QuantizationConfig, the exports of NVIDIA ModelOpt, GPTQModel's
QuantizeConfig (AutoGPTQ's is a part of it), AutoAWQ's AwqConfig.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from decodescope.analyzer.modelling.weight_formats import weight_schemes
from decodescope.analyzer.text.numbers import is_integer
from decodescope.kernels.host.packing import PackedName, integer_packing

Layout = Literal["pack-quantized", "nvfp4", "mxfp4", "gptq", "gptq_v2", "awq"]
Fields = Mapping[str, Any]

FORMATS = ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")
METHODS = ("gptq", "awq")
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

    def groups(self, columns: int) -> int:
        return -(-columns // self.group) if self.group else 1

    def divides(self, columns: int) -> bool:
        """Whether all groups of a row of so many columns are whole."""
        return not self.group or columns % self.group == 0


def packed_schemes(fields: Fields) -> tuple[PackedScheme, ...]:
    """The schemes of 4 bits in a `quantization_config` that `packed_reasons` does not refuse."""
    method = fields.get("quant_method")
    if method == "modelopt":
        named = str(fields.get("quant_algo")).upper() == _NVFP4
        return (PackedScheme("nvfp4", 16),) if named else ()
    if method == "awq":
        return (PackedScheme("awq", _group(fields), symmetric=False),)
    if method == "gptq":
        layout = _GPTQ_FORMATS[_checkpoint_format(fields)]
        order = "desc_act true" if fields.get("desc_act") is True else ""
        return (PackedScheme(layout, _group(fields), fields.get("sym", True) is True, order),)
    schemes = (_scheme(weights) for weights in weight_schemes(fields))
    return tuple(dict.fromkeys(scheme for scheme in schemes if scheme is not None))


def packed_reasons(fields: Fields) -> Iterator[str]:
    """Why 4-bit weights of GPTQ or AWQ are not loaded as they are."""
    bits = fields.get("bits", fields.get("w_bit", 4))
    if bits != 4 or not is_integer(bits):
        yield f"{shown(bits)}-bit weights in groups"
    if not is_integer(group := _group_field(fields)) or (group < 1 and group != -1):
        yield f"group_size {shown(group)}"
    form = _checkpoint_format(fields)
    if fields.get("quant_method") == "gptq" and form not in _GPTQ_FORMATS:
        yield f"checkpoint_format {form}"
    if fields.get("quant_method") == "awq":
        if (version := shown(fields.get("version", "gemm"))) != "gemm":
            yield f"version {version}"
        if fields.get("zero_point", True) is not True:
            yield "no zero points"


def scheme_reasons(weights: Fields) -> Iterator[str]:
    """Why 4-bit weights of compressed-tensors are not loaded as they are."""
    kind = weights.get("type", "int")
    if kind == "float" and _float_layout(weights) is None:
        yield f"E2M1 weights in groups of {shown(weights.get('group_size'))}"
    if (strategy := weights.get("strategy")) is not None and strategy not in _STRATEGIES:
        yield f"one scale for each {shown(strategy)}"
    group = weights.get("group_size")
    if group is not None and (not is_integer(group) or (group < 1 and group != -1)):
        yield f"group_size {shown(group)}"


def _scheme(weights: Fields) -> PackedScheme | None:
    if weights.get("num_bits", 8) != 4:
        return None
    if weights.get("type") == "float":
        layout = _float_layout(weights)
        return None if layout is None else PackedScheme(layout, int(weights["group_size"]))
    grouped = weights.get("strategy") != "channel"
    group = max(weights.get("group_size") or 0, 0) if grouped else 0
    order = f"actorder {named}" if (named := weights.get("actorder")) in _ORDERS else ""
    return PackedScheme("pack-quantized", group, weights.get("symmetric", True) is True, order)


def _float_layout(weights: Fields) -> Layout | None:
    group = weights.get("group_size")
    return _FLOAT_GROUPS.get(group) if is_integer(group) else None


def _group_field(fields: Fields) -> Any:
    return fields.get("group_size", fields.get("q_group_size", 128))


def _group(fields: Fields) -> int:
    return max(int(_group_field(fields)), 0)


def _checkpoint_format(fields: Fields) -> str:
    return shown(fields.get("checkpoint_format") or "gptq")


def shown(value: object) -> str:
    """A value of config.json in a message: in one line and lower case, its first characters."""
    text = " ".join(str(value).lower().split())
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
