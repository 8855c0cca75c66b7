"""A module with the names and layouts of gpt-fast's `model.py`: Q, K and V in one matrix, rotation
of neighbouring rows, a cache of its own. Written for the tests, with a plain mask."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


@dataclass
class ModelArgs:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    dim: int
    intermediate_size: int
    n_local_heads: int
    rope_base: float
    norm_eps: float
    rope_scaling: dict[str, Any] | None = None


class Transformer(nn.Module):
    def __init__(self, config: ModelArgs) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.n_layer))
        self.norm = _Norm(config)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.max_seq_length = -1

    def setup_caches(self, max_batch_size: int, max_seq_length: int) -> None:
        self.max_seq_length = 8 * math.ceil(max_seq_length / 8)
        config = self.config
        head = config.dim // config.n_head
        shape = (2, max_batch_size, config.n_local_heads, self.max_seq_length, head)
        for layer in self.layers:
            layer.attention.cache = torch.zeros(shape, dtype=self.tok_embeddings.weight.dtype)
        self.angles = torch.outer(torch.arange(config.block_size), _frequencies(config, head))

    def forward(self, mask: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x, positions, self.angles[positions])
        logits: torch.Tensor = self.output(self.norm(x))
        return logits


def _frequencies(config: ModelArgs, head: int) -> torch.Tensor:
    plain = config.rope_base ** -(torch.arange(0, head, 2) / head)
    if config.rope_scaling is None:
        return plain
    factor, low, high, length = (
        config.rope_scaling[name]
        for name in (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    )
    turns = length * plain / (2 * math.pi)
    part = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (part + (1 - part) / factor)


class _Norm(nn.Module):
    def __init__(self, config: ModelArgs) -> None:
        super().__init__()
        self.eps = config.norm_eps
        self.weight = nn.Parameter(torch.ones(config.dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class _Layer(nn.Module):
    def __init__(self, config: ModelArgs) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.feed_forward = _FeedForward(config)
        self.attention_norm, self.ffn_norm = _Norm(config), _Norm(config)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), positions, angles)
        return x + self.feed_forward(self.ffn_norm(x))


class _FeedForward(nn.Module):
    def __init__(self, config: ModelArgs) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w3 = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class _Attention(nn.Module):
    cache: torch.Tensor

    def __init__(self, config: ModelArgs) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.n_head, config.n_local_heads
        head = config.dim // config.n_head
        self.wqkv = nn.Linear(config.dim, (self.heads + 2 * self.kv_heads) * head, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor
    ) -> torch.Tensor:
        batch, tokens, width = x.shape
        rows = self.wqkv(x).view(batch, tokens, -1, width // self.heads).transpose(1, 2)
        q, k, v = rows.split((self.heads, self.kv_heads, self.kv_heads), 1)
        self.cache[0][:, :, positions] = _rotated(k, angles)
        self.cache[1][:, :, positions] = v
        visible = torch.arange(self.cache.shape[3]) <= positions[:, None]
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, 1) for one in self.cache)
        found = functional.scaled_dot_product_attention(_rotated(q, angles), k, v, visible)
        return self.wo(found.transpose(1, 2).reshape(batch, tokens, width))


def _rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)
