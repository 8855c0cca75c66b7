"""Which attention each layer has, and which layers have experts, from the fields of config.json."""

from decodescope.analyzer.modelling.fields import Fields, shown
from decodescope.analyzer.modelling.shape import LayerKind

# Both names of the number of positions that a layer sees at most.
WINDOW = ("sliding_window", "attention_chunk_size")
_KINDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}


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
    given = fields.sequence("layer_types")
    if given is not None:
        return _given_kinds(fields, given, layers)
    interval = fields.optional_count("full_attention_interval")
    if interval is not None:
        return _every(interval, "linear", layers)
    if fields.get(*WINDOW) is None or fields.flag("use_sliding_window") is False:
        return _alike("full", layers)
    pattern = fields.optional_count("sliding_window_pattern", "_sliding_window_pattern")
    if pattern is not None:
        return _every(pattern, "sliding", layers)
    if fields.flag("use_sliding_window"):
        first = min(fields.optional_count("max_window_layers", least=0) or 0, layers)
        return _alike("full", first) + _alike("sliding", layers - first)
    return _alike("sliding", layers)


def expert_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have experts, for a model that has some.

    `mlp_layer_types` or a list `moe_layer_freq` say it for each layer. Otherwise all layers from
    `first_k_dense_replace` on whose index is a multiple of `moe_layer_freq`, and whose index plus
    one is a multiple of `decoder_sparse_step` (`interleave_moe_layer_step`), without
    `mlp_only_layers`.

    Raises:
        InputError: contradictory fields.
    """
    given = fields.sequence("mlp_layer_types")
    if given is not None:
        _check_length(fields, "mlp_layer_types", len(given), layers)
        return tuple(kind == "sparse" for kind in given)
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list | tuple):
        _check_length(fields, "moe_layer_freq", len(frequency), layers)
        return tuple(bool(one) for one in frequency)
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


def _given_kinds(fields: Fields, given: object, layers: int) -> tuple[LayerKind, ...]:
    assert isinstance(given, list | tuple)
    _check_length(fields, "layer_types", len(given), layers)
    for kind in given:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise fields.error(
                f"layer_types has {shown(kind)}, and the bytes of such a layer are not known",
                f"known are {', '.join(_KINDS)}",
            )
    return tuple(_KINDS[kind] for kind in given)


def _alike(kind: LayerKind, layers: int) -> tuple[LayerKind, ...]:
    return (kind,) * layers


def _every(number: int, others: LayerKind, layers: int) -> tuple[LayerKind, ...]:
    """Full attention in each `number`-th layer, and `others` in the rest."""
    return tuple("full" if (index + 1) % number == 0 else others for index in range(layers))


def _indices(fields: Fields, name: str, layers: int) -> frozenset[int]:
    given = fields.sequence(name) or ()
    for index in given:
        if not isinstance(index, int) or not 0 <= index < layers:
            raise fields.error(f"{name} has {shown(index)}, but num_hidden_layers is {layers}")
    return frozenset(given)


def _check_length(fields: Fields, name: str, found: int, layers: int) -> None:
    if found != layers:
        raise fields.error(f"{name} has {found} entries, but num_hidden_layers is {layers}")
