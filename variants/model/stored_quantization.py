"""The quantization of a checkpoint as config.json describes it, without torch.

Weights of 8 bits that are their codes times one scale, of the output channel or of the matrix, are
loaded as they are, and the formats of 4 bits that `grouped` reads. Which matrices those are is read
from the weights (`quantized_tensors`), because `ignore` and `targets` are patterns of the library
that wrote them. Here is what only config.json says: that the rest of the method is another one.
Every function raises `ModelError` if the field is not what any library writes. Sources:
compressed-tensors' QuantizationConfig, vLLM's readers of `fp8`, `fbgemm_fp8` and `modelopt`,
transformers' FineGrainedFP8Config.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.analyzer.modelling.weight_formats import config_groups, weight_schemes
from decodescope.variants.model.grouped import schemes
from decodescope.variants.model.grouped.schemes import PackedScheme, packed_schemes
from decodescope.variants.spec import VariantSpec, WeightFormat

FIELD = "quantization_config"
METHODS = ("compressed-tensors", "fp8", "fbgemm_fp8", "modelopt", "mxfp4", *schemes.METHODS)

_FORMATS = (
    *("float-quantized", "int-quantized", "naive-quantized", "mixed-precision"),
    *schemes.FORMATS,
)
_STRATEGIES = ("channel", "tensor")
_MODELOPT_ALGORITHMS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4")
_TYPES: dict[str, WeightFormat] = {"float": "fp8_e4m3", "int": "int8"}


def unsupported_quantization(config: Mapping[str, Any]) -> str | None:
    """Why a checkpoint with this config.json is not loaded as it is, to follow "cannot run".

    None if it is, or if config.json mentions no quantization.
    """
    fields = _fields(config)
    if fields is None:
        return None
    reasons = dict.fromkeys(_reasons(fields, config.get("model_type")))
    if not reasons:
        return None
    method = schemes.shown(fields["quant_method"])
    return (
        f"a checkpoint quantized by {method} with {', '.join(reasons)} "
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
    return {*packed, *(format for type, format in _TYPES.items() if type in types)}


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
    if not isinstance(fields, dict) or not isinstance(fields.get("quant_method"), str):
        raise ModelError(
            f"config.json: {FIELD} is not an object with a quant_method; use the config.json that "
            "was saved with the weights"
        )
    return fields


def _reasons(fields: Mapping[str, Any], model_type: object) -> Iterator[str]:
    method = fields["quant_method"]
    if method == "compressed-tensors":
        yield from _compressed_tensors_reasons(fields)
    elif method == "fp8":
        if (block := fields.get("weight_block_size")) is not None:
            yield f"one scale for each block of {schemes.shown(block)}"
    elif method == "modelopt":
        algorithm = fields.get("quant_algo")
        if str(algorithm).upper() not in _MODELOPT_ALGORITHMS:
            yield f"quant_algo {schemes.shown(algorithm)}"
    elif method == "mxfp4":
        if model_type != "gpt_oss":
            yield f"experts of a model of type {schemes.shown(model_type)}"
    elif method in schemes.METHODS:
        yield from schemes.packed_reasons(fields)
    elif method not in METHODS:
        yield "its own packing"


def _compressed_tensors_reasons(fields: Mapping[str, Any]) -> Iterator[str]:
    for part in (fields, *config_groups(fields)):
        if (form := part.get("format")) is not None and form not in _FORMATS:
            yield f"format {schemes.shown(form)}"
    for weights in weight_schemes(fields):
        if _has_4_bits(weights):
            yield from schemes.scheme_reasons(weights)
            continue
        if (bits := weights.get("num_bits", 8)) != 8:
            yield f"{schemes.shown(bits)}-bit weights"
        if (kind := _type(weights)) not in _TYPES:
            yield f"weights of type {kind}"
        inferred = "tensor" if weights.get("group_size") is None else "group"
        if (strategy := schemes.shown(weights.get("strategy") or inferred)) not in _STRATEGIES:
            yield f"one scale for each {strategy}"
        if not weights.get("symmetric", True):
            yield "zero points"
    for name in ("sparsity_config", "transform_config"):
        extra = fields.get(name)
        if isinstance(extra, dict) and extra and extra.get("format") != "dense":
            yield f"a {name}"


def _has_4_bits(weights: Mapping[str, Any]) -> bool:
    return weights.get("num_bits", 8) == 4 and _type(weights) in _TYPES


def _type(weights: Mapping[str, Any]) -> str:
    return schemes.shown(weights.get("type", "int"))
