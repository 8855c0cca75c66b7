"""The quantization of a checkpoint as config.json describes it, without torch.

Weights of 8 bits that are their codes times one scale, of the output channel or of the matrix, are
loaded as they are, and the formats of 4 bits that `grouped` reads. Which matrices those are is read
from the weights (`quantized_tensors`), because `ignore` and `targets` are patterns of the library
that wrote them. Here is what only config.json says: that the rest of the method is another one.
Every function raises `ModelError` if the field is not what any library writes. Sources:
compressed-tensors' QuantizationConfig, vLLM's readers of `fp8`, `fbgemm_fp8` and `modelopt`,
transformers' FineGrainedFP8Config.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.analyzer.modelling.weight_formats import config_groups, weight_schemes
from decodescope.analyzer.text.numbers import is_integer
from decodescope.variants.model.grouped import schemes
from decodescope.variants.model.grouped.schemes import FIELD, PackedScheme, packed_schemes
from decodescope.variants.spec import VariantSpec, WeightFormat

METHODS = ("compressed-tensors", "fp8", "fbgemm_fp8", "modelopt", "mxfp4", *schemes.METHODS)

_FORMATS = (
    *("float-quantized", "int-quantized", "naive-quantized", "mixed-precision"),
    *schemes.FORMATS,
)
_STRATEGIES = ("channel", "tensor")
_MODELOPT_ALGORITHMS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4")
_FORMAT_OF_TYPE: dict[str, WeightFormat] = {"float": "fp8_e4m3", "int": "int8"}

# What each field that is read may be, by the methods that have it; "*" is every key.
_KINDS: Mapping[str, Callable[[object], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "an integer": is_integer,
    "a boolean": lambda value: isinstance(value, bool),
    "an object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_WEIGHTS = "config_groups.*.weights"
_GPTQ_OR_AWQ = {
    **dict.fromkeys(("bits", "w_bit", "group_size", "q_group_size"), "an integer"),
    **dict.fromkeys(("sym", "desc_act", "zero_point"), "a boolean or null"),
    **dict.fromkeys(("checkpoint_format", "version"), "a string or null"),
}
_TYPES: Mapping[str, Mapping[str, str]] = {
    "compressed-tensors": {
        "config_groups": "an object or null",
        "config_groups.*": "an object",
        _WEIGHTS: "an object or null",
        f"{_WEIGHTS}.num_bits": "an integer",
        f"{_WEIGHTS}.type": "a string",
        f"{_WEIGHTS}.strategy": "a string or null",
        f"{_WEIGHTS}.symmetric": "a boolean",
        f"{_WEIGHTS}.group_size": "an integer or null",
        f"{_WEIGHTS}.actorder": "a string or a boolean or null",
        **dict.fromkeys(("format", "config_groups.*.format"), "a string or null"),
        **dict.fromkeys(("sparsity_config", "transform_config"), "an object or null"),
    },
    "modelopt": {"quant_algo": "a string"},
    **dict.fromkeys(
        schemes.METHODS,
        {"dynamic": "an object or null", "dynamic.*": "an object or null"}
        | _GPTQ_OR_AWQ
        | {f"dynamic.*.{name}": kind for name, kind in _GPTQ_OR_AWQ.items()},
    ),
}


def unsupported_quantization(config: Mapping[str, Any]) -> str | None:
    """Why a checkpoint with this config.json is not loaded as it is, to follow "cannot run".

    None if it is, or if config.json mentions no quantization.
    """
    fields = _fields(config)
    if fields is None:
        return None
    reason = next(_reasons(fields, config.get("model_type")), None)
    if reason is None:
        return None
    path, value = reason
    return (
        f"a checkpoint quantized by {schemes.shown(fields['quant_method'])} with {path} "
        f"{schemes.shown(value)} "
        "(only 8-bit weights with one scale for each output channel or matrix, and 4-bit ones)"
    )


def stores_mxfp4(config: Mapping[str, Any]) -> bool:
    """Whether the experts are stored in MXFP4."""
    fields = _fields(config)
    return fields is not None and fields["quant_method"] == "mxfp4"


def declares_quantization(config: Mapping[str, Any]) -> bool:
    return _fields(config) is not None


def declared_schemes(config: Mapping[str, Any]) -> tuple[PackedScheme, ...]:
    """How config.json says that weights of 4 bits are stored."""
    fields = _fields(config)
    if fields is None or unsupported_quantization(config) is not None:
        return ()
    return packed_schemes(fields)


def declared_formats(config: Mapping[str, Any]) -> set[WeightFormat]:
    """The formats of quantized weights that config.json names, of those that variants have."""
    fields = _fields(config)
    if fields is None or stores_mxfp4(config):
        return set()
    packed = {scheme.format for scheme in declared_schemes(config) if scheme.format is not None}
    if fields["quant_method"] != "compressed-tensors":
        return {*packed} or {"fp8_e4m3"}
    types = {_type(weights) for weights in weight_schemes(fields) if not _has_4_bits(weights)}
    return {*packed, *(format for type, format in _FORMAT_OF_TYPE.items() if type in types)}


def require_format(name: str, config: Mapping[str, Any], spec: VariantSpec) -> None:
    """Refuse another weight format than that of a checkpoint that config.json calls quantized.

    Its weights in another format would be rounded twice, and their exact values are lost.

    Raises:
        InputError: `spec` names one.
    """
    stored = declared_formats(config)
    # W8A8 differs in its activations only.
    asked = "fp8_e4m3" if spec.weight_format == "w8a8" else spec.weight_format
    if stored and asked is not None and stored != {asked}:
        raise InputError(
            f"variant {spec}: weights in {spec.weight_format}, but {name} is stored in "
            f"{' and '.join(sorted(stored))}; leave the format out, or choose a checkpoint that is "
            "not quantized"
        )


def quantizes_activations(config: Mapping[str, Any]) -> bool:
    """Whether config.json asks for quantized activations."""
    fields = _fields(config)
    if fields is None or stores_mxfp4(config) or fields["quant_method"] in schemes.METHODS:
        return False
    if fields["quant_method"] != "compressed-tensors":
        return True
    return any(group.get("input_activations") for group in config_groups(fields))


def _fields(config: Mapping[str, Any]) -> dict[str, Any] | None:
    fields = config.get(FIELD)
    if fields is None:
        return None
    _require(FIELD, fields, "an object")
    _require(f"{FIELD}.quant_method", method := fields.get("quant_method"), "a string")
    for place, kinds in _TYPES.get(method, {}).items():
        for path, value in _at(fields, place):
            _require(path, value, kinds)
    return dict(fields)


def _require(path: str, value: object, kinds: str) -> None:
    if not any(_KINDS[kind](value) for kind in kinds.split(" or ")):
        raise ModelError(
            f"config.json: {path} is {_stored(value)}, not {kinds}; use the "
            "config.json that was saved with the weights"
        )


def _stored(value: object) -> str:
    """A value in a message; text in quotes, so that "32" is not 32."""
    return schemes.brief(json.dumps(value)) if isinstance(value, str) else schemes.shown(value)


def _at(fields: Mapping[str, Any], place: str) -> list[tuple[str, Any]]:
    """The values at a place of `_TYPES`, with their paths."""
    found: list[tuple[str, Any]] = [(FIELD, fields)]
    for part in place.split("."):
        found = [
            (f"{path}.{schemes.brief(key)}", value)
            for path, inner in found
            if isinstance(inner, dict)
            for key, value in inner.items()
            if part in ("*", key)
        ]
    return found


def _reasons(fields: Mapping[str, Any], model_type: object) -> Iterator[tuple[str, object]]:
    """The fields, by their paths, because of which a checkpoint is not loaded as it is."""
    method = fields["quant_method"]
    if method == "compressed-tensors":
        yield from _compressed_tensors_reasons(fields)
    elif method == "fp8":
        if (block := fields.get("weight_block_size")) is not None:
            yield f"{FIELD}.weight_block_size", block
    elif method == "modelopt":
        algorithm = fields.get("quant_algo")
        if str(algorithm).upper() not in _MODELOPT_ALGORITHMS:
            yield f"{FIELD}.quant_algo", algorithm
    elif method == "mxfp4":
        if model_type != "gpt_oss":
            yield "model_type", model_type
    elif method in schemes.METHODS:
        yield from schemes.packed_reasons(fields)
    elif method not in METHODS:
        yield f"{FIELD}.quant_method", method


def _compressed_tensors_reasons(fields: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for path, form in (*_at(fields, "format"), *_at(fields, "config_groups.*.format")):
        if form is not None and form not in _FORMATS:
            yield path, form
    for path, weights in _at(fields, _WEIGHTS):
        if weights is not None:
            names = schemes.scheme_reasons if _has_4_bits(weights) else _scheme_reasons
            yield from ((f"{path}.{name}", weights.get(name)) for name in names(weights))
    for name in ("sparsity_config", "transform_config"):
        extra = fields.get(name)
        if extra and extra.get("format") != "dense":
            yield f"{FIELD}.{name}", extra


def _scheme_reasons(weights: Mapping[str, Any]) -> Iterator[str]:
    """The fields because of which 8-bit weights are not loaded as they are."""
    if _type(weights) not in _FORMAT_OF_TYPE:
        yield "type"
    if weights.get("num_bits", 8) != 8:
        yield "num_bits"
    if (strategy := weights.get("strategy")) is None and weights.get("group_size") is not None:
        yield "group_size"
    elif strategy is not None and strategy not in _STRATEGIES:
        yield "strategy"
    if not weights.get("symmetric", True):
        yield "symmetric"


def _has_4_bits(weights: Mapping[str, Any]) -> bool:
    return weights.get("num_bits", 8) == 4 and _type(weights) in _FORMAT_OF_TYPE


def _type(weights: Mapping[str, Any]) -> str:
    return str(weights.get("type", "int"))
