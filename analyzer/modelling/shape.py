"""The sizes of a decoder-only transformer and of one step that determine bytes and FLOPs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from decodescope.analyzer.errors import InputError

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
    has a learned logit. `global_heads` are the KV heads and head_dim of layers of full attention,
    None where all layers are alike; with `keys_are_values` they have no projection for V. The
    last `kv_shared_layers` read K and V of earlier ones, with a `wide_mlp` of twice the width. Each
    layer has an input of `layer_input` elements, 0 without.
    `quantization` is config.json's field, None without one.
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
    global_heads: tuple[int, int] | None = None
    keys_are_values: bool = False
    kv_shared_layers: int = 0
    wide_mlp: bool = False
    layer_input: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    quantization: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the unquantised weights and of activations."""
        return ELEMENT_BYTES[self.dtype]

    def heads_of(self, layer: int) -> tuple[int, int]:
        """KV heads and head_dim of one layer."""
        if self.global_heads is not None and self.layers[layer] == "full":
            return self.global_heads
        return self.kv_heads, self.head_dim

    def shares_kv(self, layer: int) -> bool:
        return layer >= len(self.layers) - self.kv_shared_layers

    def kinds(self) -> tuple[int, ...]:
        """For each layer the number of its kind, in the order of first appearance: two layers of
        the same number have the same work. gpt-oss: (0, 1, 0, 1, ...)."""
        shares = map(self.shares_kv, range(len(self.layers)))
        return numbered(list(zip(self.layers, self.is_moe, shares, strict=True)))


def numbered(items: Sequence[Hashable]) -> tuple[int, ...]:
    """The number of each item in the order of first appearance; equal items share one."""
    number = {item: place for place, item in enumerate(dict.fromkeys(items))}
    return tuple(number[item] for item in items)


@dataclass(frozen=True, slots=True)
class StepShape:
    """One step of `batch` requests.

    `kv_tokens` is the sum over the requests of their lengths after the step, the new tokens
    included; `query_tokens` the number of new tokens in all, None for a decode step: one a request.
    `pairs` is the number of (query, key) pairs under the causal mask, if it is known. Every request
    counts with the mean length, and the mean number of new tokens.
    """

    batch: int
    kv_tokens: int
    query_tokens: int | None = None
    pairs: int | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"batch {self.batch}: give 1 or more requests")
        if self.queries < self.batch:
            raise InputError(
                f"{self.queries} new tokens for {self.batch} requests; give one or more for each"
            )
        if self.kv_tokens < self.queries:
            raise InputError(
                f"{self.kv_tokens} KV positions for {self.queries} new tokens; KV positions "
                "include the new tokens"
            )

    @property
    def queries(self) -> int:
        return self.batch if self.query_tokens is None else self.query_tokens

    def kv_read(self, window: int | None) -> float:
        """Positions that a layer's attention must read: batch * min(length, window + queries - 1)
        of the mean request."""
        if window is None:
            return self.kv_tokens
        reach = window + self.queries / self.batch - 1
        return min(float(self.kv_tokens), self.batch * reach)

    def attended_pairs(self, window: int | None) -> float:
        """(Query, key) pairs under the causal mask, and inside the window of a layer that has one:
        for a request with q queries and k keys, the sum of min(window, p) for p in (k - q, k]."""
        queries, keys = self.queries / self.batch, self.kv_tokens / self.batch
        total = (_visible(keys, window) - _visible(keys - queries, window)) * self.batch
        if self.pairs is None:
            return total
        return self.pairs if window is None else min(self.pairs, total)


def _visible(positions: float, window: int | None) -> float:
    """Sum of min(window, p) for p = 1 .. positions."""
    positions = max(positions, 0)
    if window is None or positions <= window:
        return positions * (positions + 1) / 2
    return window * (window + 1) / 2 + (positions - window) * window
