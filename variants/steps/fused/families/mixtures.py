"""Mixtral and Qwen3-MoE: the attention of a dense model, and experts in every layer or in some."""

from collections.abc import Iterator
from typing import Any

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_layer, layer_with
from decodescope.variants.steps.fused.merging import experts_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    if not hasattr(layer.mlp, "experts"):
        return dense_layer(layer, window)
    router, experts = layer.mlp.gate, layer.mlp.experts
    mixture = Experts(
        router=WeightMatrix(router.weight.detach()),
        gate_up=experts_of(experts.gate_up_proj),
        down=experts_of(experts.down_proj),
        chosen=int(router.top_k),
        # Mixtral's router has no such field and always divides.
        normalized=bool(getattr(router, "norm_topk_prob", True)),
    )
    return layer_with(layer, mixture, window)


def chosen_reasons(config: Any, count: int) -> Iterator[str]:
    if not 1 <= config.num_experts_per_tok <= count:
        yield f"{config.num_experts_per_tok} experts a token of {count}"


def _mixtral_reasons(config: Any) -> Iterator[str]:
    yield from chosen_reasons(config, config.num_local_experts)


def _qwen_reasons(config: Any) -> Iterator[str]:
    yield from chosen_reasons(config, config.num_experts)


MIXTRAL = Family(_layer, _mixtral_reasons, is_mixture=True)
QWEN3_MOE = Family(_layer, _qwen_reasons, is_mixture=True)
FAMILIES = {"mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE}
