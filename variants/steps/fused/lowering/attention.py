"""Attention: Q, K and V with rotation and cache write, attention, the O projection."""

from functools import partial

import torch

from decodescope.kernels.host.kv_cache import KvScales
from decodescope.kernels.host.operation import Tensors
from decodescope.kernels.host.weights import Norm, QkNorm
from decodescope.kernels.ops.all_reduce_qk_norm import AllReduceQkNorm
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.kernels.ops.kv_write import KvWrite
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rope import Rotate
from decodescope.variants.parallel.norm_over_ranks import norm_qk_over_ranks
from decodescope.variants.parallel.sums import RankSums
from decodescope.variants.steps.fused.blocks import FusedLayer
from decodescope.variants.steps.fused.lowering.builder import (
    Behind,
    Source,
    StepBuilder,
    row_blocks,
)
from decodescope.variants.steps.fused.torch_operators import TorchOperator, static_attention

Pair = tuple[torch.Tensor, torch.Tensor]


def lower_attention(builder: StepBuilder, path: str, index: int, layer: FusedLayer) -> None:
    """The operations of the attention of layer `index`, under `path`."""
    source = builder.normed(f"{path}/input_norm", layer.input_norm, layer.qkv)
    norm_path = f"{path}/post_attention_norm"
    path += "/attention" if source.norm is None else "/input_norm+attention"
    rows, scales = builder.plan.cache.layer(index), builder.plan.cache.scales(index)
    q = _queries(builder, path, layer, source, rows, scales)
    attended = _attended(builder, f"{path}/decode_attention", layer, q, rows, scales)
    behind = Behind(norm_path, layer.attention_output_norm)
    product = attended, layer.o, builder.tiles["o"], behind
    builder.add_product(f"{path}/o_proj", *product, continued=layer.parallel)


def _queries(
    builder: StepBuilder,
    path: str,
    layer: FusedLayer,
    source: Source,
    rows: Pair,
    scales: KvScales | None,
) -> torch.Tensor:
    """Write the new rows of K and V; returns the rotated queries [batch, heads, head_dim]."""
    plan, position = builder.plan, builder.buffers.position
    norms, q = layer.qk_norm, _heads(builder, builder.buffers.q, plan.parts.heads, layer)
    over_ranks = layer.normed_over_ranks and plan.sums is not None
    # Of a batch, no kernel has one norm for all heads.
    together = norms is not None and len(norms.q_weight) != layer.head_dim
    if builder.spec.uses("rope") and not over_ranks and not (together and len(source.x) > 1):
        fused = NormQkvRope(
            source.x,
            source.norm,
            layer.qkv,
            plan.ropes[layer.rope],
            position,
            q,
            *rows,
            builder.tiles["qkv"],
            plan.workspace,
            layer.qk_norm,
            scales,
            source.scale,
        )
        builder.add(f"{path}/qkv+rope+kv_write", fused)
        return q
    q, k, v = _projected(builder, f"{path}/qkv", layer, source, q)
    if norms is not None and plan.sums is not None and over_ranks:
        _norm_over_ranks(builder, f"{path}/qk_norm+all_reduce", q, k, norms, plan.sums)
    elif norms is not None:
        if norms.norms_v and layer.written_heads:
            # First: V may be K before its norm.
            norm = Norm(torch.ones_like(norms.k_weight), norms.eps)
            read, v = v, _heads(builder, builder.buffers.v, layer.kv_heads, layer)
            builder.add(f"{path}/qk_norm", RmsNorm(read, norm, v))
        for rows_of, weight in ((q, norms.q_weight), (k, norms.k_weight))[: layer.qkv_parts]:
            normed = rows_of.flatten(1) if together else rows_of
            builder.add(f"{path}/qk_norm", RmsNorm(normed, Norm(weight, norms.eps), normed))
    builder.add(f"{path}/rope", Rotate(q, k, plan.ropes[layer.rope], position))
    if layer.written_heads:
        builder.add(f"{path}/kv_write", KvWrite(k, v, *rows, position, scales))
    return q


def _norm_over_ranks(
    builder: StepBuilder,
    path: str,
    q: torch.Tensor,
    k: torch.Tensor,
    norms: QkNorm,
    sums: RankSums,
) -> None:
    """One norm for all heads of Q, and one for all of K, in place; other ranks have heads too."""
    rows = q.flatten(1), k.flatten(1)
    if sums.norms is not None:
        builder.add(path, AllReduceQkNorm(*rows, norms, sums.norms.exchange))
        return
    call = partial(norm_qk_over_ranks, *rows, norms, sums.ranks.size)
    builder.add(path, TorchOperator(call, (norms.q_weight, norms.k_weight)))


def _projected(
    builder: StepBuilder, path: str, layer: FusedLayer, source: Source, q: torch.Tensor
) -> Tensors:
    """Q, K and V [batch, heads, head_dim] as the products give them; Q is contiguous, in `q`."""
    buffers, tile = builder.buffers, builder.tiles["qkv"]
    k, v = (_heads(builder, one, layer.written_heads, layer) for one in (buffers.k, buffers.v))
    outputs = [q, k, v][: layer.qkv_parts]
    if not builder.spec.uses("qkv"):
        rows = [out[0].numel() for out in outputs]
        for weight, out in zip(row_blocks(layer.qkv, rows), outputs, strict=True):
            builder.linear(path, source, weight, out.flatten(1), tile)
    else:
        joined = builder.rows(buffers.qkv, layer.qkv.rows)
        builder.linear(path, source, layer.qkv, joined, tile)
        heads = joined.view(len(q), -1, layer.head_dim)
        outputs = [*torch.split(heads, [out.shape[1] for out in outputs], dim=1)]
        if not outputs[0].is_contiguous():
            builder.call(path, q.copy_, outputs[0])
            outputs[0] = q
    return (*outputs[:2], outputs[-1]) if layer.written_heads else (outputs[0], k, v)


def _heads(
    builder: StepBuilder, buffer: torch.Tensor, heads: int, layer: FusedLayer
) -> torch.Tensor:
    """The first elements of a flat `buffer` as [batch, heads, head_dim]."""
    rows = builder.rows(buffer, heads * layer.head_dim)
    return rows.view(len(rows), heads, layer.head_dim)


def _attended(
    builder: StepBuilder,
    path: str,
    layer: FusedLayer,
    q: torch.Tensor,
    rows: Pair,
    scales: KvScales | None,
) -> torch.Tensor:
    """Attention's output, [batch, heads * head_dim]."""
    plan = builder.plan
    out = _heads(builder, builder.buffers.attended, plan.parts.heads, layer)
    flat, cap = out.flatten(1), plan.parts.score_cap
    first = plan.parts.layers[0]
    alike = (layer.kv_heads, layer.head_dim) == (first.kv_heads, first.head_dim)
    if not builder.spec.uses("attention"):
        mask = plan.visible.of(layer.window)
        operands = q, *rows, mask, plan.parts.scale, cap, flat, layer.sinks
        builder.call(path, static_attention, *operands)
        return flat
    fused = DecodeAttention(
        q,
        *rows,
        builder.buffers.position,
        plan.parts.scale,
        out,
        builder.tiles["attention" if alike else "other_attention"],
        plan.workspace,
        layer.window,
        scales,
        cap,
        layer.sinks,
    )
    builder.add(path, fused)
    return flat
