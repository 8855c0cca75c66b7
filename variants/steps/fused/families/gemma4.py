"""Gemma 4 (text): as Gemma 3, with weights of norms as they are, a norm of V, and a factor
for each layer. Layers without a window have heads of their own, and V may be K before its norm.
In E2B and E4B each layer has an input of its own, and the last ones read K and V of others. 26B-A4B
has experts beside the MLP."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, LayerInputs, MixtureNorms
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.gemma import layer_with, whole
from decodescope.variants.steps.fused.merging import experts_of, matrix_of, part_of, scaled_rows

_OF_EXPERTS = ("num_experts", "top_k_experts", "moe_intermediate_size")


def _norm(module: Any) -> Norm:
    return Norm(module.weight.detach(), float(module.eps))


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention, config = layer.self_attn, layer.config
    read, kv_from = layer_with(layer, window, _norm), None
    if attention.is_kv_shared_layer:
        own = config.layer_types[: -config.num_kv_shared_layers]
        kv_from = max(i for i, kind in enumerate(own) if kind == attention.layer_type)
    if config.enable_moe_block:
        read = _with_experts(layer, read)
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


def _with_experts(layer: Any, read: FusedLayer) -> FusedLayer:
    """The layer with its MLP as that of all tokens, and norms around both."""
    router, experts = layer.router, layer.experts
    assert isinstance(read.mlp, DenseMlp)
    assert read.mlp_norm is not None
    of_each = router.per_expert_scale.detach().float().repeat_interleave(router.hidden_size)
    mixture = Experts(
        router=matrix_of(router.proj),
        gate_up=experts_of(experts.gate_up_proj),
        down=scaled_rows(experts_of(experts.down_proj), of_each),
        chosen=int(layer.config.top_k_experts),
        normalized=True,
        activation=read.mlp.activation,
        part=part_of(experts),
    )
    norms = MixtureNorms(
        router=Norm(router.scale.detach().float() * router.scalar_root_size, float(router.eps)),
        shared=read.mlp_norm,
        experts_output=_norm(layer.post_feedforward_layernorm_2),
        shared_output=_norm(layer.post_feedforward_layernorm_1),
    )
    return replace(
        read,
        mlp=mixture,
        mlp_norm=_norm(layer.pre_feedforward_layernorm_2),
        shared=read.mlp,
        mixture_norms=norms,
    )


def _reasons(config: Any) -> Iterator[str]:
    if config.use_bidirectional_attention == "all":
        yield "use_bidirectional_attention all (only attention to earlier tokens)"
    width, rows = config.hidden_size_per_layer_input, config.vocab_size_per_layer_input
    if width and rows < config.vocab_size:
        yield f"vocab_size_per_layer_input {rows} (only vocab_size, {config.vocab_size}, or more)"
    if not config.enable_moe_block:
        return
    if width:
        yield "enable_moe_block with hidden_size_per_layer_input (only one of them)"
    sizes = {name: getattr(config, name) for name in _OF_EXPERTS}
    yield from (f"enable_moe_block with {name} {size}" for name, size in sizes.items() if not size)


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
    _layer,
    _reasons,
    _norm,
    partial(whole, caps_scores=False),
    _inputs,
    activation="gelu_tanh",
    own_heads=True,
)
FAMILIES = {"gemma4_text": GEMMA4}
