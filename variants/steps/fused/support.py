"""Refuses models that the fused kernels cannot run, before any weights are loaded."""

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from importlib.util import find_spec
from math import isfinite
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.kernels.host.activation import Activation
from decodescope.kernels.host.workspace import MAX_BATCH
from decodescope.variants.model.experts import choice, expert_counts, has_experts
from decodescope.variants.model.stored_quantization import (
    declared_formats,
    unsupported_quantization,
)
from decodescope.variants.model.text_decoder import decoder_fields
from decodescope.variants.model.workload_costs import head_dim, layer_configs
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec
from decodescope.variants.steps.fused.families import families
from decodescope.variants.steps.fused.families.family import Family

MIN_HEAD_DIM, MAX_HEAD_DIM = 32, 512
MIN_CAPABILITY = (8, 0)
# Triton converts E4M3 (of NVFP4, the scales) with instructions that older GPUs lack; others need
# none.
MIN_E4M3_CAPABILITY = (8, 9)

_E4M3 = {
    word for word, stored in NARROW_WEIGHTS.items() if stored.elements in ("fp8_e4m3", "nvfp4")
}
_ACTIVATIONS: Mapping[Activation, tuple[str, ...]] = {
    "silu": ("silu", "swish"),
    "gelu_tanh": ("gelu_pytorch_tanh",),
}
_FUSED = VariantSpec("fused")
_OF_HEADS = frozenset({"head_dim", "num_key_value_heads"})


def require_support(
    name: str,
    fields: Mapping[str, object],
    batch: int,
    device: str,
    spec: VariantSpec = _FUSED,
) -> None:
    """Refuse a model or batch that the fused kernels of `spec` cannot run; needs no weights.

    `name` is the model's, for the message; `fields` its config.json, or
    `preset.config` of a preset.

    Raises:
        ModelError: a model they cannot run, with every reason.
        InputError: more sequences than they decode at once.
        MissingRequirement: Triton is not installed, or the GPU is too old.
    """
    reason = unsupported_fields(fields, spec)
    if reason is not None:
        raise ModelError(f"{name}: the fused kernels cannot run {reason}; choose another variant")
    if batch > MAX_BATCH:
        raise InputError(f"--batch {batch}: the fused kernels decode at most {MAX_BATCH} sequences")
    if find_spec("triton") is None:
        raise MissingRequirement(
            "the fused kernels need Triton, which is not installed (Linux only)"
        )
    if device == "cuda":
        formats = {spec.weight_format, spec.kv_format, *declared_formats(fields)}
        reason = unsupported_gpu(torch.cuda.get_device_capability(), formats)
        if reason is not None:
            raise MissingRequirement(f"{torch.cuda.get_device_name()}: {reason}")


def unsupported_gpu(
    capability: tuple[int, int], formats: Collection[str | None] = ()
) -> str | None:
    """Why the fused kernels cannot run these formats of weights, K and V on a GPU of this compute
    capability; None if they can."""
    actual = ".".join(map(str, capability))
    if capability < MIN_CAPABILITY:
        needed = ".".join(map(str, MIN_CAPABILITY))
        return f"the fused kernels need compute capability {needed}, this GPU has {actual}"
    if capability < MIN_E4M3_CAPABILITY and _E4M3.intersection(formats):
        needed = ".".join(map(str, MIN_E4M3_CAPABILITY))
        return (
            f"FP8 in E4M3 needs compute capability {needed}, this GPU has {actual}; choose "
            "weights in fp8_e5m2 or int8, which every supported GPU converts"
        )
    return None


def unsupported_fields(fields: Mapping[str, object], spec: VariantSpec = _FUSED) -> str | None:
    """The parts of a model with this config.json that the kernels of `spec` lack, to follow "cannot
    run".

    All reasons at once. None if there is none, or if transformers cannot read the fields: loading
    the model reports that better. Raises as `unsupported_quantization`.
    """
    fields = decoder_fields(fields)
    model_type = str(fields.get("model_type"))
    if model_type not in families():
        return f"model_type {model_type} (supported: {', '.join(families())})"
    try:
        config = CONFIG_MAPPING[model_type].from_dict(deepcopy(dict(fields)))
    except Exception:  # transformers raises nearly every type for a broken configuration
        return None
    family, quantization = families()[model_type], unsupported_quantization(fields)
    reasons = [*([quantization] if quantization else ()), *_reasons(config, family)]
    if not reasons and has_experts(config):
        reasons = [*_reasons_of_experts(model_type, declared_formats(fields), spec)]
    return ", ".join(reasons) or None


def _reasons(config: Any, family: Family) -> Iterator[str]:
    # The configuration of all layers does not give these. Older releases have no such layers.
    own = getattr(config, "per_layer_attributes", None) or set()
    if differing := own - (_OF_HEADS if family.own_heads else set()):
        yield f"per_layer_config with {', '.join(sorted(differing))} (only layers that are alike)"
        return
    # Gemma's field. transformers ignores the other one in every family.
    field = "hidden_activation" if family.activation == "gelu_tanh" else "hidden_act"
    names = _ACTIVATIONS[family.activation]
    if (activation := getattr(config, field)) not in names:
        yield f"{field} {activation} (only {names[0]})"
    if broken := [*_broken_sizes(config)]:
        yield from broken
        return
    sizes = dict.fromkeys(
        (head_dim(layer), layer.num_key_value_heads) for layer in layer_configs(config)
    )
    for place, (size, kv_heads) in zip(("", "global_"), sizes, strict=False):
        if size % 2 or not MIN_HEAD_DIM <= size <= MAX_HEAD_DIM:
            yield f"{place}head_dim {size} (only even ones from {MIN_HEAD_DIM} to {MAX_HEAD_DIM})"
        if config.num_attention_heads % kv_heads:
            yield (
                f"num_attention_heads {config.num_attention_heads} (only a multiple of "
                f"num_{place}key_value_heads, {kv_heads})"
            )
    size = next(iter(sizes))[0]
    # Some families have parameters for each kind of layer, without a part.
    rotated = _rotated_part(config) or 1.0
    if rotated != 1 and not family.rotates_part:
        yield f"partial_rotary_factor {rotated} (only whole heads)"
    elif int(size * rotated) not in range(2, size + 1, 2):
        yield f"partial_rotary_factor {rotated} of head_dim {size} (only of an even part)"
    count, chosen = expert_counts(config)
    if not 1 <= chosen <= count:
        yield choice(config)
    yield from _window_reasons(config, family)
    known = {"full_attention", "sliding_attention"}
    if unknown := set(getattr(config, "layer_types", None) or ()) - known:
        yield f"layer_types with {', '.join(sorted(unknown))} (only full and sliding attention)"
    else:
        yield from family.reasons(config)


def _broken_sizes(config: Any) -> Iterator[str]:
    """Sizes that no attention has."""
    attention_sizes = {
        (field, value)
        for layer in layer_configs(config)
        for field in ("num_attention_heads", "num_key_value_heads", "head_dim")
        if (value := getattr(layer, field, None)) is not None or field != "head_dim"
    }
    for field, value in sorted(attention_sizes, key=str):
        if not isinstance(value, int) or value < 1:
            yield f"{field} {value} (only positive integers)"
    rotated = _rotated_part(config)
    if rotated is not None and not (isinstance(rotated, int | float) and isfinite(rotated)):
        yield f"partial_rotary_factor {rotated!r} (only numbers)"


def _rotated_part(config: Any) -> Any:
    """The field as it is, None without one: a broken configuration has no parameters at all."""
    return (config.rope_parameters or {}).get("partial_rotary_factor")


def _window_reasons(config: Any, family: Family) -> Iterator[str]:
    """Windows of transformers' cache that the attention does not have."""
    types = getattr(config, "layer_types", None) or ()
    if (chunk := getattr(config, "attention_chunk_size", None)) is not None and not types:
        yield f"attention_chunk_size {chunk} (only full and sliding attention)"
    if family.windowed:
        return
    if (window := getattr(config, "sliding_window", None)) is not None:
        yield f"sliding_window {window} in a {config.model_type} model"
    if "sliding_attention" in types:
        yield f"layer_types with sliding_attention in a {config.model_type} model"


def _reasons_of_experts(
    model_type: str, declared: Collection[str], spec: VariantSpec
) -> Iterator[str]:
    """Why `spec` is no variant of a mixture of experts whose config.json declares these formats."""
    if declared:
        stored = " and ".join(sorted(declared))
        yield f"experts in {stored} by quantization_config (only those that a variant quantises)"
    if spec.narrow and not families()[model_type].quantizable:
        yield f"{model_type} with weights in {spec.weight_format}"
    elif spec.fp8_x:
        yield "experts with activations in FP8"
