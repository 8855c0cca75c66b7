"""Every field of quantization_config that is read: a refusal names the field and its value."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.stored_quantization import (
    declared_formats,
    declared_schemes,
    quantizes_activations,
    unsupported_quantization,
)
from tests.variants.model import grouped_checkpoints, quantized_checkpoints
from tests.variants.model.broken_checkpoints import copy_of_tiny, with_config
from tests.variants.model.test_grouped_checkpoints import load

FIELD = "quantization_config"
_WEIGHTS = ("num_bits", "type", "strategy", "symmetric", "group_size", "actorder")
_GPTQ = ("bits", "group_size", "sym", "desc_act", "checkpoint_format")
PLACES: dict[str, tuple[str, ...]] = {
    "compressed-tensors": (
        *("quant_method", "format", "config_groups", "sparsity_config", "transform_config"),
        *("config_groups.group_0", "config_groups.group_0.format", "config_groups.group_0.weights"),
        *(f"config_groups.group_0.weights.{name}" for name in _WEIGHTS),
    ),
    "gptq": (
        *("quant_method", "w_bit", "q_group_size", "dynamic", "dynamic.+:down", *_GPTQ),
        *(f"dynamic.+:down.{name}" for name in _GPTQ),
    ),
    "awq": ("quant_method", *_GPTQ[:2], "version", "zero_point"),
    "modelopt": ("quant_method", "quant_algo"),
    "fp8": ("quant_method", "weight_block_size"),
    "mxfp4": ("quant_method",),
}
WHOLE: dict[str, list[dict[str, Any]]] = {
    method: [
        layout.config
        for layouts in (grouped_checkpoints.LAYOUTS, quantized_checkpoints.LAYOUTS)
        for layout in layouts.values()
        if layout.config is not None and layout.config["quant_method"] == method
    ]
    for method in PLACES
}
WHOLE["gptq"] += [WHOLE["gptq"][0] | {"dynamic": {"+:down": {"bits": 4}, "-:head": {}}}]
WHOLE["mxfp4"] += [{"quant_method": "mxfp4"}]
CASES = [
    (config, place)
    for method, configs in WHOLE.items()
    for config in configs
    for place in PLACES[method]
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
_VALUES = st.sampled_from((2, 3, 4, 8, 16, 32, -1, "int", "float", "group", "channel", "gptq"))


def changed(config: dict[str, Any], place: str, *value: Any) -> dict[str, Any]:
    """A copy with another value at a place, or with none, where the place is in an object."""
    made: Any = deepcopy(config)
    inner, (*path, name) = made, place.split(".")
    for part in path:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(name, None)
        inner.update(zip([name], value, strict=False))
    return made  # type: ignore[no-any-return]


def refusal(fields: Any) -> str | None:
    whole = {FIELD: fields, "model_type": "gpt_oss"}
    try:
        reason = unsupported_quantization(whole)
        for scheme in declared_schemes(whole):
            assert scheme.groups(96) >= 1
        declared_formats(whole)
        quantizes_activations(whole)
    except ModelError as error:
        return str(error)
    return reason


def named(message: str) -> tuple[str, str]:
    """The field and the value in a refusal."""
    refusal = re.search(rf"({FIELD}\S*) (?:is )?(.*?)(?:, not an? | \(only 8-bit)", message)
    assert refusal is not None, message
    return refusal[1], refusal[2]


def at(fields: Any, path: str) -> Any:
    for part in path.split(".")[1:]:
        fields = fields.get(part) if isinstance(fields, dict) else None
    return fields


def shown(value: Any) -> str:
    words = "missing" if value is None else " ".join(str(value).lower().split())
    return words if len(words) <= 40 else f"{words[:40]}..."


@given(st.sampled_from(CASES), st.lists(_JSON | _VALUES, max_size=1))
@example((WHOLE["gptq"][0], "bits"), ["4\nx"])
@example((WHOLE["compressed-tensors"][0], "config_groups.group_0.weights.num_bits"), ["\n"])
def test_any_change_is_read_or_refused_with_a_field_and_its_value(
    case: tuple[dict[str, Any], str], value: list[Any]
) -> None:
    fields = changed(*case, *value)
    message = refusal(fields)
    if message is not None:
        assert "\n" not in message
        assert len(message) < 400
        path, words = named(message)
        refused_value = at(fields, path)
        # Text of another type than the field's is in quotes.
        assert words.lower() in (shown(refused_value), shown(json.dumps(refused_value)))


def wrong_types() -> Iterator[tuple[str, str, Any]]:
    for method, places in PLACES.items():
        for place in places:
            # Any block is named as one that is not read.
            if (method, place) != ("fp8", "weight_block_size"):
                yield method, place, [["x"]]
            if place.rpartition(".")[2] not in ("sparsity_config", "transform_config"):
                yield method, place, 2.5


@pytest.mark.parametrize(("method", "place", "value"), wrong_types())
def test_another_type_is_refused_by_the_name_of_its_field(
    method: str, place: str, value: Any
) -> None:
    message = refusal(changed(WHOLE[method][-1], place, value))
    assert message is not None
    assert named(message) == (f"{FIELD}.{place}", shown(value))


@pytest.mark.parametrize(
    ("method", "place", "value"),
    [
        ("compressed-tensors", "format", "marlin-24"),
        ("compressed-tensors", "config_groups.group_0.format", "marlin-24"),
        ("compressed-tensors", "config_groups.group_0.weights.num_bits", 6),
        ("compressed-tensors", "config_groups.group_0.weights.type", "posit"),
        ("compressed-tensors", "config_groups.group_0.weights.strategy", "token"),
        ("compressed-tensors", "config_groups.group_0.weights.group_size", -7),
        ("compressed-tensors", "sparsity_config", {"format": "sparse-24-bitmask"}),
        ("compressed-tensors", "transform_config", {"config_groups": {}}),
        ("gptq", "bits", 8),
        ("gptq", "group_size", 0),
        ("gptq", "checkpoint_format", "marlin"),
        ("gptq", "dynamic.+:down.bits", 8),
        ("gptq", "dynamic.+:down.group_size", -2),
        ("awq", "bits", 3),
        ("awq", "version", "gemv"),
        ("awq", "zero_point", False),
        ("modelopt", "quant_algo", "W4A8_AWQ"),
        ("modelopt", "quant_algo", None),
        ("fp8", "weight_block_size", [128, 128]),
        ("mxfp4", "quant_method", "hqq"),
    ],
)
def test_an_unknown_value_is_refused_by_the_name_of_its_field(
    method: str, place: str, value: Any
) -> None:
    config = next(each for each in WHOLE[method] if each.get("format") != "float-quantized")
    message = refusal(changed(config, place, value))
    assert message is not None
    assert named(message) == (f"{FIELD}.{place}", shown(value))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quant_method": "gptq", "bits": 3}, f"with {FIELD}.bits 3 (only"),
        ({"quant_method": "awq", "version": "gemv"}, f"with {FIELD}.version gemv (only"),
    ],
)
def test_what_transformers_cannot_load_either_is_refused_with_the_field(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = copy_of_tiny(tmp_path / "tiny")
    with_config(quantization_config=fields)(folder)
    with pytest.raises(ModelError, match=r"cannot be loaded \(.*\); it is a checkpoint") as caught:
        load(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
