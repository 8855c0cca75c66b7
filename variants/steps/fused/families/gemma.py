"""Gemma 2 and Gemma 3: norms with weight + 1 before and after the parts of a layer, GELU, scaled
embeddings; soft caps, and in Gemma 3 QK-norm and a rotation for each kind of layer."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from decodescope.kernels.host.weights import Norm
from decodescope.variants.steps.fused.blocks import FusedLayer, FusedModel
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.families.llama import dense_mlp
from decodescope.variants.steps.fused.merging import (
    matrix_of,
    norm_plus_one,
    qk_norm_of,
    scaled_rows,
)


def layer_with(layer: Any, window: int | None, norm: Callable[[Any], Norm]) -> FusedLayer:
    """The layer with each `norm` as the family has them, and those projections that there are."""
    attention = layer.self_attn
    names = "q_proj", "k_proj", "v_proj"
    return FusedLayer(
        input_norm=norm(layer.input_layernorm),
        qkv=matrix_of(*filter(None, (getattr(attention, name, None) for name in names))),
        qk_norm=qk_norm_of(attention, norm),
        o=matrix_of(attention.o_proj),
        mlp_norm=norm(layer.pre_feedforward_layernorm),
        mlp=dense_mlp(layer.mlp, "gelu_tanh"),
        window=window,
        attention_output_norm=norm(layer.post_attention_layernorm),
        mlp_output_norm=norm(layer.post_feedforward_layernorm),
    )


def _layer(layer: Any, window: int | None) -> FusedLayer:
    return layer_with(layer, window, norm_plus_one)


def _layer_of_a_kind(layer: Any, window: int | None) -> FusedLayer:
    return replace(_layer(layer, window), rope=layer.self_attn.layer_type)


def whole(config: Any, parts: FusedModel, caps_scores: bool) -> FusedModel:
    """The model with scaled embeddings and its soft caps."""
    # transformers rounds the factor to the model's dtype.
    factor = float(torch.tensor(config.hidden_size**0.5, dtype=parts.dtype))
    return replace(
        parts,
        embedding=scaled_rows(parts.embedding, factor),
        score_cap=config.attn_logit_softcapping if caps_scores else None,
        logit_cap=config.final_logit_softcapping,
    )


def _reasons(config: Any) -> Iterator[str]:
    if config.use_bidirectional_attention:
        yield "use_bidirectional_attention (only attention to earlier tokens)"
    if (scalar := config.query_pre_attn_scalar) <= 0:
        yield f"query_pre_attn_scalar {scalar} (only positive numbers)"


GEMMA2 = Family(
    _layer,
    _reasons,
    norm_plus_one,
    partial(whole, caps_scores=True),
    activation="gelu_tanh",
)
GEMMA3 = Family(
    _layer_of_a_kind,
    _reasons,
    norm_plus_one,
    # Its attention has the field and does not use it.
    partial(whole, caps_scores=False),
    activation="gelu_tanh",
)
FAMILIES = {"gemma2": GEMMA2, "gemma3_text": GEMMA3}
