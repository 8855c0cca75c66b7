"""gpt-oss: experts with biases and a clamped gate, attention with sinks.

transformers stores the matrices of experts with a row for each input. They are laid out once with a
row for each output, and its parameters become views of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from decodescope.kernels.host.activation import ClampedGate
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.variants.model.quantized_weights import QuantizedExperts
from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import layer_with
from decodescope.variants.steps.fused.merging import experts_of, matrix_of, part_of


def _layer(layer: Any, window: int | None) -> FusedLayer:
    router, experts = layer.mlp.router, layer.mlp.experts
    mixture = Experts(
        router=matrix_of(router),
        gate_up=_by_outputs(experts.gate_up_proj, experts.gate_up_proj_bias),
        down=_by_outputs(experts.down_proj, experts.down_proj_bias),
        chosen=int(router.top_k),
        normalized=True,
        interleaved=True,
        activation=ClampedGate(float(experts.alpha), float(experts.limit)),
        part=part_of(experts),
    )
    sinks = layer.self_attn.sinks.detach()
    return replace(layer_with(layer, mixture, window), sinks=sinks)


def _by_outputs(weight: torch.Tensor | QuantizedExperts, bias: torch.Tensor) -> WeightMatrix:
    """The matrices of `weight` [experts, columns, rows] and `bias` [experts, rows]."""
    biases = bias.detach().flatten()
    if isinstance(weight, QuantizedExperts):
        return experts_of(weight, biases)
    outputs = weight.detach().mT
    if not outputs.is_contiguous():
        outputs = outputs.contiguous()
        weight.data = outputs.mT
    return experts_of(outputs, biases)


def _reasons(config: Any) -> Iterator[str]:
    if (count := config.num_local_experts) < 1:
        yield f"num_local_experts {count} (only models with experts)"


FAMILIES = {"gpt_oss": Family(_layer, _reasons, quantizable=False, angles_once=True)}
