"""GLM-4: gate and up in one matrix, RoPE of neighbours on a part of each head. Its second version
(glm4) has norms after the parts of a layer too."""

from typing import Any

from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.merging import matrix_of, norm_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention = layer.self_attn
    has_output_norms = hasattr(layer, "post_mlp_layernorm")
    return FusedLayer(
        input_norm=norm_of(layer.input_layernorm),
        qkv=matrix_of(attention.q_proj, attention.k_proj, attention.v_proj),
        qk_norm=None,
        o=matrix_of(attention.o_proj),
        mlp_norm=norm_of(layer.post_attention_layernorm),
        mlp=DenseMlp(matrix_of(layer.mlp.gate_up_proj), matrix_of(layer.mlp.down_proj)),
        window=window,
        attention_output_norm=(
            norm_of(layer.post_self_attn_layernorm) if has_output_norms else None
        ),
        mlp_output_norm=norm_of(layer.post_mlp_layernorm) if has_output_norms else None,
    )


GLM = Family(_layer, rotates_part=True, rotates_neighbours=True)
FAMILIES = {"glm": GLM, "glm4": GLM}
