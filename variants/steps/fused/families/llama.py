"""Llama 2 and 3, Mistral, Qwen2 and 3, Phi-3 and 4, Seed-OSS, Ernie 4.5, SmolLM 3: biases, QK-norm
and merged projections as they are."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decodescope.kernels.host.activation import Activation
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer
from decodescope.variants.steps.fused.families.family import Family
from decodescope.variants.steps.fused.merging import matrix_of, norm_of, qk_norm_of


def layer_with(layer: Any, mlp: DenseMlp | Experts, window: int | None) -> FusedLayer:
    """The layer's attention and norms around `mlp`."""
    attention = layer.self_attn
    return FusedLayer(
        input_norm=norm_of(layer.input_layernorm),
        qkv=_joined(attention, "qkv_proj", "q_proj", "k_proj", "v_proj"),
        qk_norm=qk_norm_of(attention),
        o=matrix_of(attention.o_proj),
        mlp_norm=norm_of(layer.post_attention_layernorm),
        mlp=mlp,
        window=window,
    )


def dense_layer(layer: Any, window: int | None) -> FusedLayer:
    """A layer with one gated MLP."""
    return layer_with(layer, dense_mlp(layer.mlp), window)


def dense_mlp(mlp: Any, activation: Activation = "silu") -> DenseMlp:
    """A gated MLP."""
    gate_up = _joined(mlp, "gate_up_proj", "gate_proj", "up_proj")
    return DenseMlp(gate_up, matrix_of(mlp.down_proj), activation)


def _joined(module: Any, merged: str, *parts: str) -> WeightMatrix:
    """The projection `merged` of `module`, or else its `parts` in one matrix."""
    names = (merged,) if hasattr(module, merged) else parts
    return matrix_of(*(getattr(module, name) for name in names))


def _smollm3_layer(layer: Any, window: int | None) -> FusedLayer:
    """Every fourth layer has no rotation."""
    return replace(dense_layer(layer, window), rope="" if layer.self_attn.use_rope else None)


def one_window_reasons(config: Any) -> Iterator[str]:
    """The attention of the family has one window for all layers whatever `layer_types` says."""
    window, types = config.sliding_window, set(getattr(config, "layer_types", None) or ())
    expected = "full_attention" if window is None else "sliding_attention"
    if types and types != {expected}:
        kind = config.model_type
        yield f"layer_types other than {expected} in a {kind} model of window {window}"


def _mistral_reasons(config: Any) -> Iterator[str]:
    """transformers loads a Mistral checkpoint with `layer_types` as a model of another family."""
    if hasattr(config, "layer_types"):
        yield "layer_types in a mistral model (transformers loads it as a ministral model)"


FAMILIES = {
    "llama": Family(dense_layer, windowed=False),
    "mistral": Family(dense_layer, _mistral_reasons),
    "qwen2": Family(dense_layer),
    "qwen3": Family(dense_layer),
    "seed_oss": Family(dense_layer, windowed=False),
    "smollm3": Family(_smollm3_layer),
    "phi3": Family(dense_layer, one_window_reasons, rotates_part=True),
    "ernie4_5": Family(dense_layer, rotates_neighbours=True, windowed=False),
}
