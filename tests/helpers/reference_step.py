"""One decode step in plain float64 from what the fused kernels are given, and nothing else."""

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.experts_down import experts_down_reference
from decodescope.kernels.ops.experts_gate_up import experts_gate_up_reference
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.steps.fused.blocks import FusedLayer, FusedModel
from decodescope.variants.steps.fused.kv_cache import KvCache


def reference_step(
    parts: FusedModel, rope: RopeTable, cache: KvCache, ids: torch.Tensor, position: int
) -> torch.Tensor:
    """Logits [batch, vocabulary] in float64 of `ids` [batch] at `position`; fills that row."""
    x = parts.embedding.dense()[ids]
    for index, layer in enumerate(parts.layers):
        keys, values = cache.layer(index)
        q = _q_and_rows(parts, layer, rope, x, keys, values, position)
        x = x + _product(layer.o, _attention(parts, layer, q, keys, values, position))
        normed = _normed(layer.post_attention_norm, x)
        if isinstance(layer.mlp, Experts):
            logits = _product(layer.mlp.router, normed)
            gated = experts_gate_up_reference(normed, None, layer.mlp, logits)
            x = experts_down_reference(gated, layer.mlp, logits, x)
        else:
            gate, up = _product(layer.mlp.gate_up, normed).chunk(2, dim=-1)
            x = x + _product(layer.mlp.down, gate / (1 + torch.exp(-gate)) * up)
    return _product(parts.head, _normed(parts.final_norm, x))


def _q_and_rows(
    parts: FusedModel,
    layer: FusedLayer,
    rope: RopeTable,
    x: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: int,
) -> torch.Tensor:
    """q [batch, heads, head_dim]; the new rows of K and V go into the cache."""
    rows = _product(layer.qkv, _normed(layer.input_norm, x))
    heads = rows.view(len(x), parts.heads + 2 * parts.kv_heads, parts.head_dim)
    q, k, v = heads.split([parts.heads, parts.kv_heads, parts.kv_heads], dim=1)
    if layer.qk_norm is not None:
        q = _normed(Norm(layer.qk_norm.q_weight, layer.qk_norm.eps), q)
        k = _normed(Norm(layer.qk_norm.k_weight, layer.qk_norm.eps), k)
    if layer.rotates:
        q, k = _rotated(q, rope, position), _rotated(k, rope, position)
    keys[:, :, position] = k.to(keys.dtype)
    values[:, :, position] = v.to(values.dtype)
    return q


def _attention(
    parts: FusedModel,
    layer: FusedLayer,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: int,
) -> torch.Tensor:
    first = 0 if layer.window is None else max(0, position + 1 - layer.window)
    group = parts.heads // parts.kv_heads
    k = keys[:, :, first : position + 1].double().repeat_interleave(group, dim=1)
    v = values[:, :, first : position + 1].double().repeat_interleave(group, dim=1)
    scores = torch.einsum("bhd,bhtd->bht", q, k) * parts.scale
    return torch.einsum("bht,bhtd->bhd", scores.softmax(-1), v).flatten(1)


def _product(matrix: WeightMatrix, x: torch.Tensor) -> torch.Tensor:
    product = x @ matrix.dense().T
    return product if matrix.bias is None else product + matrix.bias.double()


def _normed(norm: Norm, x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight.double()


def _rotated(x: torch.Tensor, rope: RopeTable, position: int) -> torch.Tensor:
    cos, sin = rope.cos[position].double(), rope.sin[position].double()
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
