"""Which parts of a model are stored in which format, from `--weights` and from config.json.

Embedding table, router, norms, biases and, unless asked for, lm_head keep the model's dtype: so do
engines and checkpoints. MXFP4 is a format of experts: in a model that has some, the attention's
matrices keep the dtype (as in gpt-oss).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, get_args

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.modelling.weight_formats import WeightFormat, stored_format, weight_format
from decodescope.analyzer.text.plain import plain_line

Part = Literal["attention", "mlp", "experts", "head", "embedding"]
PARTS: tuple[Part, ...] = get_args(Part)
PART_OF_ROLE: Mapping[str, Part] = {
    "qkv": "attention",
    "o": "attention",
    "gate_up": "mlp",
    "down": "mlp",
    "experts": "experts",
    "head": "head",
}
_IN_LAYERS: tuple[Part, ...] = ("attention", "mlp", "experts")
_KV = "kv"
_MAX_SHOWN = 40
_EXPERTS_ONLY = "mxfp4"
_NUMBER = re.compile(r"\.(\d+)\.")
_EXCLUDED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude", "exclude_modules")
# Elements of the KV cache; scales are one for each layer or head, and are not counted.
KV_ELEMENT_BYTES: Mapping[str, int] = {
    "bf16": 2,
    "fp16": 2,
    "fp32": 4,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "int8"), 1),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """The format of each part of a model, and the bytes of an element of the KV cache."""

    attention: WeightFormat
    mlp: WeightFormat
    experts: WeightFormat
    head: WeightFormat
    embedding: WeightFormat
    kv_element_bytes: int = 2

    def of(self, part: Part) -> WeightFormat:
        stored: WeightFormat = getattr(self, part)
        return stored

    def with_parts(self, parts: Iterable[Part], stored: WeightFormat) -> "Weights":
        changed: dict[str, Any] = dict.fromkeys(parts, stored)
        return replace(self, **changed)


def model_weights(shape: ModelShape, text: str | None = None) -> Weights:
    """The formats that `text`, the value of `--weights`, asks for, else those of config.json.

    `text` is a format for the matrices of the layers, or formats of parts, or both, with commas:
    "fp8", "bf16,experts=mxfp4", "fp8,head=fp8,kv=fp8". Parts are attention, mlp, experts, head,
    embedding and kv. Without a format for the layers, parts that are not named are as stored.

    Raises:
        InputError: no such format or part; without `text`, a quantization_config that is not known.
    """
    base = weight_format(shape.dtype)
    weights = Weights(base, base, base, base, base, shape.element_bytes)
    named = _named_formats(text)
    if all(named_part for named_part, _ in named):
        weights = _with_stored(weights, shape, shape.quantization or {})
    for part, name in named:
        if part == _KV:
            weights = replace(weights, kv_element_bytes=kv_element_bytes(name))
            continue
        stored = weight_format(name)
        only_experts = stored.name == _EXPERTS_ONLY and shape.experts is not None
        of_layers: tuple[Part, ...] = ("experts",) if only_experts else _IN_LAYERS
        weights = weights.with_parts((part,) if part in PARTS else of_layers, stored)
    return weights


def check_weights(text: str) -> None:
    """Check the value of `--weights` for a model that is not known yet.

    Raises:
        InputError: no such format or part.
    """
    for part, name in _named_formats(text):
        read = kv_element_bytes if part == _KV else weight_format
        read(name)


def _named_formats(text: str | None) -> list[tuple[str, str]]:
    """The part, or "" for the matrices of the layers, and the format of each word of `text`."""
    named = []
    for word in text.split(",") if text and text.strip() else []:
        part, equals, name = (piece.strip() for piece in word.rpartition("="))
        if equals and part not in (*PARTS, _KV):
            raise InputError(
                f"weights {plain_line(word)[:_MAX_SHOWN]!r}: no such part; known are "
                f"{', '.join((*PARTS, _KV))}"
            )
        named.append((part, name))
    return named


def kv_element_bytes(name: str) -> int:
    """Bytes of an element of a KV cache in this format.

    Raises:
        InputError: no such format.
    """
    size = KV_ELEMENT_BYTES.get(name.strip().lower().replace("-", "_"))
    if size is None:
        raise InputError(
            f"KV cache in {plain_line(name)[:_MAX_SHOWN]!r}: no such format; known are "
            f"{', '.join(KV_ELEMENT_BYTES)}"
        )
    return size


def _excludes(config: Mapping[str, Any], word: str, layers: int) -> bool:
    """Whether the modules that keep their dtype are those called `word` of all layers: a pattern
    for all, or a name for each; some checkpoints except single layers."""
    lists = [config.get(name) for name in _EXCLUDED]
    names = [str(name) for names in lists if isinstance(names, list) for name in names]
    numbers = [_NUMBER.findall(name) for name in names if word in name]
    return [] in numbers or len(set(chain(*numbers))) >= layers


def _with_stored(weights: Weights, shape: ModelShape, config: Mapping[str, Any]) -> Weights:
    """The weights as a `quantization_config` stores them; "mlp" are also shared experts."""
    if not config:
        return weights
    parts: set[Part] = {"experts"} if config.get("quant_method") == "mxfp4" else set(_IN_LAYERS)
    if _excludes(config, "attn", len(shape.layers)):
        parts.discard("attention")
    if _excludes(config, "shared_expert", sum(shape.is_moe) or len(shape.layers)):
        parts.discard("mlp")
    if config.get("lm_head") is True:
        parts.add("head")
    weights = weights.with_parts(parts, stored_format(shape, config))
    kv8 = config.get("kv_cache_scheme") or "8" in str(config.get("kv_cache_quant_algo"))
    return replace(weights, kv_element_bytes=1) if kv8 else weights
