"""SmolLM 3: as Llama, but every fourth layer has no rotation."""

from dataclasses import replace
from typing import Any

from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_layer


def _layer(layer: Any, window: int | None) -> FusedLayer:
    return replace(dense_layer(layer, window), rope="" if layer.self_attn.use_rope else None)


SMOLLM3 = Family(_layer)
FAMILIES = {"smollm3": SMOLLM3}
