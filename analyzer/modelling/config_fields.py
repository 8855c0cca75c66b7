"""Reads the fields of a config.json: single values, and the attention and experts of each layer.

An error says which field of which file, and why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.shape import LayerKind, QkNorm
from decodescope.analyzer.text.numbers import is_integer

_LARGEST = 1 << 31
_MAX_SHOWN = 60
# Both names of the number of positions that a layer sees at most.
WINDOW = ("sliding_window", "attention_chunk_size")
_KINDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one config.json, or of its `text_config`.

    `source` names the file in errors, `defaults` holds what files of the family leave out; a null
    in the file means that there is no value, and no default either.
    """

    source: str
    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """The first of these that the file has, else the first default, else None."""
        for values in (self.values, self.defaults):
            present = [values[name] for name in names if name in values]
            if present:
                return next((value for value in present if value is not None), None)
        return None

    def named(self, *names: str) -> str:
        """The first of these that has a value, for errors."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def count(self, *names: str, least: int = 1) -> int:
        """An integer that must be there."""
        count = self.optional_count(*names, least=least)
        if count is None:
            raise self.error(f"has no {' or '.join(names)}", "give the config.json of a decoder")
        return count

    def optional_count(self, *names: str, least: int = 1) -> int | None:
        """An integer from `least` to 2^31, or None."""
        value = self.get(*names)
        if value is None:
            return None
        if not is_integer(value) or not least <= value < _LARGEST:
            wanted = f"an integer from {least} to 2^31"
            raise self.error(f"{self.named(*names)} is {shown(value)}, not {wanted}")
        return value

    def flag(self, *names: str) -> bool | None:
        value = self.get(*names)
        if value is not None and not isinstance(value, bool):
            raise self.error(f"{self.named(*names)} is {shown(value)}, not true or false")
        return value

    def sequence(self, name: str) -> Sequence[Any] | None:
        value = self.get(name)
        if value is not None and not isinstance(value, list | tuple):
            raise self.error(f"{name} is {shown(value)}, not a list")
        return value

    def error(self, problem: str, advice: str = "") -> InputError:
        advice = advice or "use the file that was saved with the weights"
        return InputError(f"{self.source}: {problem}; {advice}")


class Family(msgspec.Struct, frozen=True):
    """Facts that the classes of one `model_type` fix by themselves, and a config.json does not say;
    everything else is read from fields. Source: the configuration and modelling files of
    `transformers.models.<model_type>`. `defaults` are values of fields that their files may leave
    out.

    `qkv_bias`: Q, K and V have a bias and O has none, whatever the fields say. Without `o_bias`,
    attention_bias is about Q, K and V only. Four `norms_per_layer`: a norm behind attention and MLP
    as well. `norm_bias`: LayerNorm instead of RMSNorm. Without `gated` the MLP has two matrices
    instead of three. `shared_gate`, `expert_bias` and `router_bias` are those of `Experts`.
    `layer_inputs`: hidden_size_per_layer_input is as in Gemma 4.
    """

    qkv_bias: bool = False
    o_bias: bool = True
    qk_norm: QkNorm = "none"
    norms_per_layer: int = 2
    norm_bias: bool = False
    gated: bool = True
    attention_gate: bool = False
    sinks: bool = False
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    layer_inputs: bool = False
    defaults: dict[str, Any] = {}


@cache
def families() -> dict[str, Family]:
    """The families that fix something, by their `model_type`: those of families.json."""
    data = resources.files(__package__).joinpath("families.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Family])


def shown(value: object) -> str:
    """A value from a file in an error, cut to a length that fits on a line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def attention_kinds(fields: Fields, layers: int) -> tuple[LayerKind, ...]:
    """The attention of each layer.

    `layer_types` says it; without them, every layer has the `sliding_window` that is given, or, of
    each `sliding_window_pattern` layers, all but the last; `full_attention_interval` likewise sets
    apart the layers that are not linear. `use_sliding_window` false, or the index of a layer below
    `max_window_layers`, means full attention. Attention inside chunks counts as a window of a
    chunk's size: it reads that much at most.

    Raises:
        InputError: contradictory fields, or a kind of attention whose bytes are not known.
    """
    types = fields.sequence("layer_types")
    if types is not None:
        return _listed_kinds(fields, types, layers)
    interval = fields.optional_count("full_attention_interval")
    if interval is not None:
        return _every(interval, "linear", layers)
    if fields.get(*WINDOW) is None or fields.flag("use_sliding_window") is False:
        return _every(1, "sliding", layers)
    pattern = fields.optional_count("sliding_window_pattern", "_sliding_window_pattern")
    if pattern is not None:
        return _every(pattern, "sliding", layers)
    first = 0
    if fields.flag("use_sliding_window"):
        first = fields.optional_count("max_window_layers", least=0) or 0
    return tuple("full" if index < first else "sliding" for index in range(layers))


def expert_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have experts, for a model that has some.

    `mlp_layer_types` or a list `moe_layer_freq` say it for each layer. Otherwise all layers from
    `first_k_dense_replace` on whose index is a multiple of `moe_layer_freq`, and whose index plus
    one is a multiple of `decoder_sparse_step` (`interleave_moe_layer_step`), without
    `mlp_only_layers`.

    Raises:
        InputError: contradictory fields.
    """
    types = fields.sequence("mlp_layer_types")
    if types is not None:
        _check_length(fields, "mlp_layer_types", types, layers)
        return tuple(kind == "sparse" for kind in types)
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list | tuple):
        _check_length(fields, "moe_layer_freq", frequency, layers)
        return tuple(map(bool, frequency))
    every = fields.optional_count("moe_layer_freq") or 1
    first = fields.optional_count("first_k_dense_replace", least=0) or 0
    step = fields.optional_count("decoder_sparse_step", "interleave_moe_layer_step") or 1
    dense = _indices(fields, "mlp_only_layers", layers)
    if first > layers:
        raise fields.error(f"first_k_dense_replace is {first}, but num_hidden_layers is {layers}")
    return tuple(
        index >= first and index % every == 0 and (index + 1) % step == 0 and index not in dense
        for index in range(layers)
    )


def _listed_kinds(fields: Fields, types: Sequence[Any], layers: int) -> tuple[LayerKind, ...]:
    _check_length(fields, "layer_types", types, layers)
    for kind in types:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise fields.error(
                f"layer_types has {shown(kind)}, and the bytes of such a layer are not known",
                f"known are {', '.join(_KINDS)}",
            )
    return tuple(_KINDS[kind] for kind in types)


def _every(number: int, between: LayerKind, layers: int) -> tuple[LayerKind, ...]:
    return tuple("full" if (index + 1) % number == 0 else between for index in range(layers))


def _indices(fields: Fields, name: str, layers: int) -> frozenset[int]:
    indices = fields.sequence(name) or ()
    for index in indices:
        if not is_integer(index) or not 0 <= index < layers:
            raise fields.error(f"{name} has {shown(index)}, but num_hidden_layers is {layers}")
    return frozenset(indices)


def _check_length(fields: Fields, name: str, entries: Sequence[Any], layers: int) -> None:
    if len(entries) != layers:
        raise fields.error(f"{name} has {len(entries)} entries, but num_hidden_layers is {layers}")
