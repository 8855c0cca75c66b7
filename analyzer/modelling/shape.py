"""The sizes of a decoder-only transformer, as far as its bytes and FLOPs depend on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

LayerKind = Literal["full", "sliding", "linear"]
# How Q and K are normed: not at all, each head by itself (with weights or without), or all heads at
# once.
QkNorm = Literal["none", "head", "plain", "all"]

ELEMENT_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `per_token` of `count` experts of width `intermediate` work on a token.

    `shared_intermediate` is the width of all shared experts together, 0 without any; with
    `shared_gate` a scalar of each token scales their output. `bias`: the experts' matrices have
    biases. `router_bias` counts the router's values beside its matrix, 0 or 1 an expert.
    """

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: the cache holds `kv_rank` + `rope_dim` elements a token.

    `q_rank` is None if Q is projected at once. A head's Q and K have `nope_dim` + `rope_dim`
    elements, its V `value_dim`. Source: DeepSeek-V2 (arXiv 2405.04434).
    """

    q_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated DeltaNet: a state of `key_dim` x `value_dim` for each value head instead of a KV cache.

    Source: Gated Delta Networks (arXiv 2412.06464), as in Qwen3-Next.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolution: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model. `name` is what the user gave, `source` the file or table that says the rest.

    `layers` holds the kind of attention of each layer, `is_moe` which layers have experts in place
    of the MLP of width `intermediate`. `sliding_window` is in tokens, the new one included.
    `norms_per_layer` counts the norms of the residual stream's width. `attention_gate`: Q's
    projection also yields a gate for each element of the attention's output. `sinks`: each head
    has a learned logit. `quantization` is config.json's field, None without one.
    """

    name: str
    source: str
    model_type: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    layers: tuple[LayerKind, ...]
    is_moe: tuple[bool, ...]
    dtype: str = "bf16"
    tied: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    qk_norm: QkNorm = "none"
    norms_per_layer: int = 2
    norm_bias: bool = False
    sliding_window: int | None = None
    attention_gate: bool = False
    sinks: bool = False
    experts: Experts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    quantization: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the unquantised weights and of activations."""
        return ELEMENT_BYTES[self.dtype]

    def kinds(self) -> tuple[int, ...]:
        """For each layer the number of its kind, in the order of first appearance: two layers of
        the same number have the same work. gpt-oss: (0, 1, 0, 1, ...)."""
        pairs = list(zip(self.layers, self.is_moe, strict=True))
        known = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        return tuple(known[pair] for pair in pairs)
