"""Gemma 4 (text, dense): as Gemma 3, with weights of norms as they are, a norm of V, and a factor
for each layer. Layers without a window have heads of their own, and V may be K before its norm."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from decodescope.kernels.host.weights import Norm, QkNorm
from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.gemma import whole
from decodescope.variants.steps.fused.families.llama import dense_mlp
from decodescope.variants.steps.fused.merging import matrix_of


def _norm(module: Any) -> Norm:
    return Norm(module.weight.detach(), float(module.eps))


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention = layer.self_attn
    q_norm, k_norm = _norm(attention.q_norm), _norm(attention.k_norm)
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    return FusedLayer(
        input_norm=_norm(layer.input_layernorm),
        qkv=matrix_of(*(each for each in projections if each is not None)),
        qk_norm=QkNorm(q_norm.weight, k_norm.weight, q_norm.eps, norms_v=True),
        o=matrix_of(attention.o_proj),
        mlp_norm=_norm(layer.pre_feedforward_layernorm),
        mlp=dense_mlp(layer.mlp, "gelu_tanh"),
        window=window,
        rope=attention.layer_type,
        attention_output_norm=_norm(layer.post_attention_layernorm),
        mlp_output_norm=_norm(layer.post_feedforward_layernorm),
        factor=layer.layer_scalar,
    )


def _reasons(config: Any) -> Iterator[str]:
    if config.use_bidirectional_attention == "all":
        yield "use_bidirectional_attention all (only attention to earlier tokens)"
    if config.enable_moe_block:
        yield "enable_moe_block (only dense MLPs)"
    if config.hidden_size_per_layer_input:
        yield f"hidden_size_per_layer_input {config.hidden_size_per_layer_input} (only 0)"
    if config.num_kv_shared_layers:
        yield f"num_kv_shared_layers {config.num_kv_shared_layers} (only 0)"


GEMMA4 = Family(_layer, _reasons, _norm, partial(whole, caps_scores=False), activation="gelu_tanh")
FAMILIES = {"gemma4_text": GEMMA4}
