"""Mixtral, Qwen2-MoE, Qwen3-MoE and GLM-4.5: the attention of a dense model, and experts in every
layer or in some, with a shared one beside them or without."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import (
    dense_layer,
    dense_mlp,
    layer_with,
    one_window_reasons,
)
from decodescope.variants.steps.fused.merging import experts_of, matrix_of, part_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    if not hasattr(layer.mlp, "experts"):
        return dense_layer(layer, window)
    router, experts = layer.mlp.gate, layer.mlp.experts
    correction = getattr(router, "e_score_correction_bias", None)
    mixture = Experts(
        router=WeightMatrix(router.weight.detach()),
        gate_up=experts_of(experts.gate_up_proj),
        down=experts_of(experts.down_proj),
        chosen=int(router.top_k),
        # Mixtral's always divides. Its configuration may hold the field of another family.
        normalized=bool(getattr(router, "norm_topk_prob", True)),
        correction=None if correction is None else correction.detach().float(),
        factor=float(getattr(router, "routed_scaling_factor", 1.0)),
        part=part_of(experts),
    )
    read = layer_with(layer, mixture, window)
    # Qwen2-MoE has one with a gate; GLM-4.5 some, which are one MLP.
    for name in ("shared_expert", "shared_experts"):
        if (shared := getattr(layer.mlp, name, None)) is not None:
            gate = getattr(layer.mlp, f"{name}_gate", None)
            gate_row = None if gate is None else matrix_of(gate)
            read = replace(read, shared=dense_mlp(shared), shared_gate=gate_row)
    return read


def _glm_reasons(config: Any) -> Iterator[str]:
    for field in ("n_group", "topk_group"):
        if (groups := getattr(config, field)) != 1:
            yield f"{field} {groups} (only experts in one group)"
    if not config.norm_topk_prob:
        yield "norm_topk_prob false (only weights that are divided by their sum)"


FAMILIES = {
    "mixtral": Family(_layer, one_window_reasons),
    "qwen2_moe": Family(_layer),
    "qwen3_moe": Family(_layer, one_window_reasons),
    "glm4_moe": Family(_layer, _glm_reasons, rotates_part=True, windowed=False),
}
