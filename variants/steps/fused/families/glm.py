"""GLM-4: gate and up in one matrix, RoPE of neighbours on a part of each head. Its second version
(glm4) has norms after the parts of a layer too."""

from dataclasses import replace
from typing import Any

from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_layer
from decodescope.variants.steps.fused.merging import norm_of


def _glm4_layer(layer: Any, window: int | None) -> FusedLayer:
    return replace(
        dense_layer(layer, window),
        attention_output_norm=norm_of(layer.post_self_attn_layernorm),
        mlp_output_norm=norm_of(layer.post_mlp_layernorm),
    )


GLM = Family(dense_layer, rotates_part=True, rotates_neighbours=True, windowed=False)
GLM4 = replace(GLM, layer=_glm4_layer)
FAMILIES = {"glm": GLM, "glm4": GLM4}
