"""OLMo 2, OLMo 3 and EXAONE 4: norms after attention and MLP, and of Q and K.

OLMo has one norm for all heads. OLMo 3 has sliding windows, and a rotation for each kind of layer.
Among layers with windows, EXAONE 4 does not rotate in those without.
"""

from dataclasses import replace
from typing import Any

from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_mlp
from decodescope.variants.steps.fused.merging import matrix_of, norm_of, qk_norm_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention = layer.self_attn
    return FusedLayer(
        input_norm=None,
        qkv=matrix_of(attention.q_proj, attention.k_proj, attention.v_proj),
        qk_norm=qk_norm_of(attention),
        o=matrix_of(attention.o_proj),
        mlp_norm=None,
        mlp=dense_mlp(layer.mlp),
        window=window,
        attention_output_norm=norm_of(layer.post_attention_layernorm),
        mlp_output_norm=norm_of(layer.post_feedforward_layernorm),
    )


def _layer_of_a_kind(layer: Any, window: int | None) -> FusedLayer:
    return replace(_layer(layer, window), rope=layer.self_attn.attention_type)


def _layer_of_exaone(layer: Any, window: int | None) -> FusedLayer:
    rotates = window is not None or layer.self_attn.sliding_window is None
    return replace(_layer(layer, window), rope="" if rotates else None)


FAMILIES = {
    "olmo2": Family(_layer, windowed=False),
    "olmo3": Family(_layer_of_a_kind),
    "exaone4": Family(_layer_of_exaone),
}
