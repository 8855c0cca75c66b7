"""One decode step in plain float64 from what the fused kernels are given, and nothing else."""

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.experts_down import experts_down_reference
from decodescope.kernels.ops.experts_gate_up import experts_gate_up_reference
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, FusedModel
from decodescope.variants.steps.fused.kv_cache import KvCache
from decodescope.variants.steps.fused.rope_tables import Ropes

_ACTIVATIONS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    ),
}


def reference_step(
    parts: FusedModel, ropes: Ropes, cache: KvCache, ids: torch.Tensor, position: int
) -> torch.Tensor:
    """Logits [batch, vocabulary] in float64 of `ids` [batch] at `position`; fills that row."""
    table = parts.embedding
    x = table.data[ids].double()
    x = x if table.scale is None else x * table.scale[ids].double()[:, None]
    inputs = _layer_inputs(parts, ids, x)
    for index, layer in enumerate(parts.layers):
        keys, values = cache.layer(index)
        q = _q_and_rows(parts, layer, ropes[layer.rope], x, keys, values, position)
        attention_input = _normed(layer.input_norm, x)
        attended = _product(layer.o, _attention(parts, layer, q, keys, values, position))
        x = x + _normed(layer.attention_output_norm, attended)
        normed = attention_input if layer.parallel else _normed(layer.mlp_norm, x)
        if isinstance(layer.mlp, Experts) and (norms := layer.mixture_norms) is not None:
            assert layer.shared is not None
            logits = _product(layer.mlp.router, _normed(norms.router, x))
            gated = experts_gate_up_reference(normed, None, layer.mlp, logits)
            summed = experts_down_reference(gated, layer.mlp, logits, torch.zeros_like(x))
            dense = _dense(layer.shared, _normed(norms.shared, x))
            both = _normed(norms.experts_output, summed) + _normed(norms.shared_output, dense)
            x = x + _normed(layer.mlp_output_norm, both)
        elif isinstance(layer.mlp, Experts):
            logits = _product(layer.mlp.router, normed)
            gated = experts_gate_up_reference(normed, None, layer.mlp, logits)
            x = experts_down_reference(gated, layer.mlp, logits, x)
            if layer.shared is not None:
                gate = layer.shared_gate
                share = 1.0 if gate is None else torch.sigmoid(_product(gate, normed))
                x = x + share * _dense(layer.shared, normed)
        else:
            x = x + _normed(layer.mlp_output_norm, _dense(layer.mlp, normed))
        if (own := layer.own_input) is not None:
            gated = _ACTIVATIONS[own.activation](_product(own.gate_up, x)) * inputs[:, index]
            x = x + _normed(layer.own_input_norm, _product(own.down, gated))
        x = x if layer.factor is None else x * layer.factor.double()
    return _capped(_product(parts.head, _normed(parts.final_norm, x)), parts.logit_cap)


def _layer_inputs(parts: FusedModel, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The inputs of all layers [batch, layers, width]; of width 0 if the model has none."""
    inputs, shape = parts.layer_inputs, (len(x), len(parts.layers), -1)
    if inputs is None:
        return x.new_zeros(len(x), len(parts.layers), 0)
    rows = inputs.table.dense()[ids].view(shape)
    return rows + _normed(inputs.norm, _product(inputs.projection, x).view(shape))


def _dense(mlp: DenseMlp, x: torch.Tensor) -> torch.Tensor:
    gate, up = _product(mlp.gate_up, x).chunk(2, dim=-1)
    return _product(mlp.down, _ACTIVATIONS[mlp.activation](gate) * up)


def _capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


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
    q, *k_and_v = rows.view(len(x), -1, layer.head_dim).tensor_split(
        [parts.heads, parts.heads + layer.kv_heads], dim=1
    )
    if layer.kv_from is not None:
        weight, eps = layer.qk_norm.q_weight, layer.qk_norm.eps
        return _rotated(_heads_normed(weight, eps, q), rope, position)
    k, v = (one if one.numel() else k_and_v[0] for one in k_and_v)
    if layer.qk_norm is not None and layer.qk_norm.norms_v:
        v = _heads_normed(torch.ones(layer.head_dim, device=x.device), layer.qk_norm.eps, v)
    if layer.qk_norm is not None:
        q = _heads_normed(layer.qk_norm.q_weight, layer.qk_norm.eps, q)
        k = _heads_normed(layer.qk_norm.k_weight, layer.qk_norm.eps, k)
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
    group = parts.heads // layer.kv_heads
    k = keys[:, :, first : position + 1].double().repeat_interleave(group, dim=1)
    v = values[:, :, first : position + 1].double().repeat_interleave(group, dim=1)
    scores = _capped(torch.einsum("bhd,bhtd->bht", q, k) * parts.scale, parts.score_cap)
    exponentials = scores.exp()
    total = exponentials.sum(-1, keepdim=True)
    if layer.sinks is not None:
        total += layer.sinks.double().exp()[:, None]
    return torch.einsum("bht,bhtd->bhd", exponentials / total, v).flatten(1)


def _product(matrix: WeightMatrix, x: torch.Tensor) -> torch.Tensor:
    product = x @ matrix.dense().T
    return product if matrix.bias is None else product + matrix.bias.double()


def _heads_normed(weight: torch.Tensor, eps: float, heads: torch.Tensor) -> torch.Tensor:
    """Each head of heads [batch, heads, head_dim] normed, or all together, as `weight` is long."""
    rows = heads if len(weight) == heads.shape[2] else heads.flatten(1)
    return _normed(Norm(weight, eps), rows).view(heads.shape)


def _normed(norm: Norm | None, x: torch.Tensor) -> torch.Tensor:
    if norm is None:
        return x
    if norm.centered:
        x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight.double()


def _rotated(x: torch.Tensor, rope: RopeTable, position: int) -> torch.Tensor:
    cos, sin = rope.cos[position].double(), rope.sin[position].double()
    if rope.distance == 1:
        low, high = x[..., ::2], x[..., 1::2]
        turned = (low * cos - high * sin, high * cos + low * sin)
        return torch.stack(turned, dim=-1).flatten(-2)
    rest = x[..., 2 * rope.distance :]
    low, high = x[..., : 2 * rope.distance].chunk(2, dim=-1)
    cos, sin = cos[: rope.distance], sin[: rope.distance]
    return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), dim=-1)
