"""Cohere 2 (Command R7B and A): attention and MLP read one LayerNorm and are added together; layers
without a window have no rotation; RoPE of neighbours; a factor for logits."""

from dataclasses import replace
from typing import Any

from decodescope.kernels.host.weights import Norm
from decodescope.variants.steps.fused.blocks import FusedLayer, FusedModel
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_mlp
from decodescope.variants.steps.fused.merging import matrix_of, norm_of, scaled_rows


def _norm(module: Any) -> Norm:
    return replace(norm_of(module), centered=True)


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention = layer.self_attn
    return FusedLayer(
        input_norm=_norm(layer.input_layernorm),
        qkv=matrix_of(attention.q_proj, attention.k_proj, attention.v_proj),
        qk_norm=None,
        o=matrix_of(attention.o_proj),
        mlp_norm=None,
        mlp=dense_mlp(layer.mlp),
        window=window,
        rope=None if window is None else "",
        parallel=True,
    )


def _whole(config: Any, parts: FusedModel) -> FusedModel:
    return replace(parts, head=scaled_rows(parts.head, config.logit_scale))


COHERE2 = Family(_layer, norm=_norm, whole=_whole, rotates_neighbours=True, repeats_angles=True)
FAMILIES = {"cohere2": COHERE2}
