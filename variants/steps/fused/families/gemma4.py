"""Gemma 4 (text, dense): as Gemma 3, with weights of norms as they are, a norm of V, and a factor
for each layer. Layers without a window have heads of their own, and V may be K before its norm.
In E2B and E4B each layer has an input of its own, and the last ones read K and V of others."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from decodescope.kernels.host.weights import Norm
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, LayerInputs
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.gemma import layer_with, whole
from decodescope.variants.steps.fused.merging import matrix_of, scaled_rows


def _norm(module: Any) -> Norm:
    return Norm(module.weight.detach(), float(module.eps))


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention, config = layer.self_attn, layer.config
    read, kv_from = layer_with(layer, window, _norm), None
    if attention.is_kv_shared_layer:
        own = config.layer_types[: -config.num_kv_shared_layers]
        kv_from = max(i for i, kind in enumerate(own) if kind == attention.layer_type)
    if config.hidden_size_per_layer_input:
        gate, projection = layer.per_layer_input_gate, layer.per_layer_projection
        own = DenseMlp(matrix_of(gate), matrix_of(projection), "gelu_tanh")
        norm = _norm(layer.post_per_layer_input_norm)
        read = replace(read, own_input=own, own_input_norm=norm)
    assert read.qk_norm is not None
    return replace(
        read,
        qk_norm=replace(read.qk_norm, norms_v=True),
        rope=attention.layer_type,
        factor=layer.layer_scalar,
        kv_from=kv_from,
    )


def _reasons(config: Any) -> Iterator[str]:
    if config.use_bidirectional_attention == "all":
        yield "use_bidirectional_attention all (only attention to earlier tokens)"
    if config.enable_moe_block:
        yield "enable_moe_block (only dense MLPs)"


def _inputs(decoder: Any) -> LayerInputs | None:
    config, share = decoder.config, 2.0**-0.5
    width = config.hidden_size_per_layer_input
    if not width:
        return None
    norm = _norm(decoder.per_layer_projection_norm)
    return LayerInputs(
        scaled_rows(matrix_of(decoder.embed_tokens_per_layer), share * width**0.5),
        matrix_of(decoder.per_layer_model_projection),
        # Of the product times hidden^-0.5.
        Norm(share * norm.weight.float(), norm.eps * config.hidden_size),
    )


GEMMA4 = Family(
    _layer, _reasons, _norm, partial(whole, caps_scores=False), _inputs, activation="gelu_tanh"
)
FAMILIES = {"gemma4_text": GEMMA4}
