"""Granite: as Llama, with factors for embeddings, what a layer adds, scores and logits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, FusedModel
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_layer
from decodescope.variants.steps.fused.merging import scaled_rows


def _layer(layer: Any, window: int | None) -> FusedLayer:
    read, factor = dense_layer(layer, window), float(layer.residual_multiplier)
    assert isinstance(read.mlp, DenseMlp)
    mlp = replace(read.mlp, down=scaled_rows(read.mlp.down, factor))
    return replace(read, o=scaled_rows(read.o, factor), mlp=mlp)


def _whole(config: Any, parts: FusedModel) -> FusedModel:
    return replace(
        parts,
        embedding=scaled_rows(parts.embedding, config.embedding_multiplier),
        head=scaled_rows(parts.head, 1.0 / config.logits_scaling),
    )


def _reasons(config: Any) -> Iterator[str]:
    if not config.logits_scaling:
        yield "logits_scaling 0 (logits are divided by it)"


FAMILIES = {"granite": Family(_layer, _reasons, whole=_whole, windowed=False)}
