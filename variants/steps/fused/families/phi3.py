"""Phi-3 and Phi-4: Q, K and V in one matrix, gate and up in another; partial RoPE."""

from typing import Any

from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.merging import matrix_of, norm_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    return FusedLayer(
        input_norm=norm_of(layer.input_layernorm),
        qkv=matrix_of(layer.self_attn.qkv_proj),
        qk_norm=None,
        o=matrix_of(layer.self_attn.o_proj),
        mlp_norm=norm_of(layer.post_attention_layernorm),
        mlp=DenseMlp(matrix_of(layer.mlp.gate_up_proj), matrix_of(layer.mlp.down_proj)),
        window=window,
    )


PHI3 = Family(_layer, rotates_part=True)
FAMILIES = {"phi3": PHI3}
