"""The launches of one decode step, in their order: 5 a layer and 2 with every fusion."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from msgspec.structs import asdict

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.decode_attention import decode_attention
from decodescope.kernels.ops.embedding import embed
from decodescope.kernels.ops.kv_write import kv_write
from decodescope.kernels.ops.linear import linear
from decodescope.kernels.ops.linear_residual import linear_residual
from decodescope.kernels.ops.norm_gate_up import norm_gate_up
from decodescope.kernels.ops.norm_head import norm_head
from decodescope.kernels.ops.norm_qkv_rope import norm_qkv_rope
from decodescope.kernels.ops.rms_norm import rms_norm
from decodescope.kernels.ops.rms_norm_residual import rms_norm_residual
from decodescope.kernels.ops.rope import rotate
from decodescope.kernels.ops.swiglu import swiglu
from decodescope.kernels.sampling.sample import sample
from decodescope.variants.steps.fused.model_parts import FusedLayer
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import StepProgram
from decodescope.variants.steps.fused.static_attention import static_attention


def launch_step(plan: StepPlan, keep_logits: bool) -> StepProgram:
    """Decode the token at the device's position: the next one is written behind it, and the
    position moves on by one. With `keep_logits` the logits stay in their buffer.

    Returns the launches, to be made again. The host waits for nothing and learns nothing. The first
    launch is no dependent one, so whatever ran before has completed when the kernels read the
    position.
    """
    buffers, program = plan.buffers, StepProgram(plan.ranges)
    with program.range("model"):
        with program.range("embedding"):
            program.add(embed(plan.parts.embedding, buffers.tokens, buffers.position, buffers.x))
            if not plan.spec.uses("attention"):
                plan.visible.update(buffers.position)
                program.uses_torch()
        for index in range(len(plan.parts.layers)):
            with program.range(f"layer.{index}"):
                _attention(plan, program, index)
                _mlp(plan, program, plan.parts.layers[index])
        _head(plan, program, keep_logits)
    if plan.sampling is not None or not plan.spec.uses("head"):
        with program.range("sampling"):
            _choose(plan, program, keep_logits)
    return program


def _attention(plan: StepPlan, program: StepProgram, index: int) -> None:
    layer = plan.parts.layers[index]
    keys, values = plan.cache.layer(index)
    source, norm = _normed(plan, program, "input_norm", layer.input_norm, unadded=index > 0)
    with program.range("attention" if norm is None else "input_norm+attention"):
        q = _queries(plan, program, layer, source, norm, keys, values)
        with program.range("decode_attention"):
            attended = _attended(plan, program, layer, q, keys, values)
        _add_product(plan, program, "o_proj", attended, layer.o, plan.tiles.o)


def _queries(
    plan: StepPlan,
    program: StepProgram,
    layer: FusedLayer,
    source: torch.Tensor,
    norm: Norm | None,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Write the new rows of K and V; returns the rotated queries [batch, heads, head_dim]."""
    buffers, position = plan.buffers, plan.buffers.position
    if plan.spec.uses("rope"):
        with program.range("qkv+rope+kv_write"):
            program.add(
                norm_qkv_rope(
                    source,
                    norm,
                    layer.qkv,
                    plan.rope,
                    position,
                    buffers.q,
                    keys,
                    values,
                    plan.tiles.qkv,
                    plan.workspace,
                    layer.qk_norm,
                    plan.pdl,
                )
            )
        return buffers.q
    with program.range("qkv"):
        q, k, v = _projected(plan, program, layer, source, norm)
    if layer.qk_norm is not None:
        with program.range("qk_norm"):
            program.add(rms_norm(q, Norm(layer.qk_norm.q_weight, layer.qk_norm.eps), q, plan.pdl))
            program.add(rms_norm(k, Norm(layer.qk_norm.k_weight, layer.qk_norm.eps), k, plan.pdl))
    with program.range("rope"):
        program.add(rotate(q, k, plan.rope, position, pdl=plan.pdl))
    with program.range("kv_write"):
        program.add(kv_write(k, v, keys, values, position, plan.pdl))
    return q


def _projected(
    plan: StepPlan, program: StepProgram, layer: FusedLayer, source: torch.Tensor, norm: Norm | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Q, K and V [batch, heads, head_dim] as the products give them; Q lies contiguous."""
    buffers, tile = plan.buffers, _unsplit(plan.tiles.qkv)
    outputs = (buffers.q, buffers.k, buffers.v)
    if not plan.spec.uses("qkv"):
        rows = [out[0].numel() for out in outputs]
        for weight, out in zip(_row_blocks(layer.qkv, rows), outputs, strict=True):
            program.add(linear(source, weight, out.flatten(1), tile, norm, plan.pdl))
        return outputs
    program.add(linear(source, layer.qkv, buffers.qkv, tile, norm, plan.pdl))
    heads = buffers.qkv.view(len(source), -1, plan.parts.head_dim)
    q, k, v = torch.split(heads, [out.shape[1] for out in outputs], dim=1)
    if not q.is_contiguous():
        q = buffers.q.copy_(q)
        program.uses_torch()
    return q, k, v


def _row_blocks(weight: WeightMatrix, rows: list[int]) -> Iterator[WeightMatrix]:
    """The matrix cut into blocks of so many rows."""
    first = 0
    for count in rows:
        block = slice(first, first + count)
        yield WeightMatrix(
            weight.data[block],
            None if weight.scale is None else weight.scale[block],
            None if weight.bias is None else weight.bias[block],
        )
        first += count


def _attended(
    plan: StepPlan,
    program: StepProgram,
    layer: FusedLayer,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Attention's output, [batch, heads * head_dim]."""
    if not plan.spec.uses("attention"):
        program.uses_torch()
        mask = plan.visible.of(layer.window)
        return static_attention(q, keys, values, mask, plan.parts.scale)
    program.add(
        decode_attention(
            q,
            keys,
            values,
            plan.buffers.position,
            plan.parts.scale,
            plan.buffers.attended,
            plan.tiles.attention,
            plan.workspace,
            layer.window,
            plan.pdl,
            layer.o if plan.prefetch else None,
        )
    )
    return plan.buffers.attended.flatten(1)


def _mlp(plan: StepPlan, program: StepProgram, layer: FusedLayer) -> None:
    name = "post_attention_norm"
    source, norm = _normed(plan, program, name, layer.post_attention_norm, unadded=True)
    with program.range("mlp" if norm is None else f"{name}+mlp"):
        _activate(plan, program, layer, source, norm)
        _add_product(
            plan, program, "down_proj", plan.buffers.activation, layer.down, plan.tiles.down
        )


def _activate(
    plan: StepPlan, program: StepProgram, layer: FusedLayer, source: torch.Tensor, norm: Norm | None
) -> None:
    buffers, tile = plan.buffers, plan.tiles.gate_up
    if plan.spec.uses("gate_up"):
        with program.range("gate_up+silu"):
            program.add(
                norm_gate_up(source, norm, layer.gate_up, buffers.activation, tile, plan.pdl)
            )
        return
    with program.range("gate_up"):
        halves = _row_blocks(layer.gate_up, [plan.parts.intermediate] * 2)
        for weight, out in zip(halves, (buffers.gate, buffers.up), strict=True):
            program.add(linear(source, weight, out, _unsplit(tile), norm, plan.pdl))
    with program.range("silu"):
        program.add(swiglu(buffers.gate, buffers.up, buffers.activation, plan.pdl))


def _head(plan: StepPlan, program: StepProgram, keep_logits: bool) -> None:
    buffers, head, tile = plan.buffers, plan.parts.head, plan.tiles.head
    source, norm = _normed(plan, program, "final_norm", plan.parts.final_norm, unadded=True)
    with program.range("lm_head" if norm is None else "final_norm+lm_head"):
        if not plan.spec.uses("head"):
            program.add(linear(source, head, buffers.model_logits, _unsplit(tile), norm, plan.pdl))
            return
        greedy = plan.sampling is None
        program.add(
            norm_head(
                source,
                norm,
                head,
                buffers.tokens,
                buffers.position,
                tile,
                plan.workspace,
                buffers.logits if keep_logits or not greedy else None,
                choose=greedy,
                pdl=plan.pdl,
            )
        )


def _choose(plan: StepPlan, program: StepProgram, keep_logits: bool) -> None:
    """The next tokens from the logits, and the position moved on, where the head did not do it."""
    buffers = plan.buffers
    fused = plan.spec.uses("head")
    if keep_logits and not fused:
        buffers.logits.copy_(buffers.model_logits)
        program.uses_torch()
    if plan.sampling is not None:
        assert plan.draws is not None
        logits = buffers.logits if fused else buffers.model_logits
        options = asdict(plan.sampling)
        program.add(
            *sample(logits, buffers.position, buffers.tokens, plan.draws, **options, pdl=plan.pdl)
        )
        return
    program.uses_torch()
    chosen = buffers.model_logits.argmax(-1, keepdim=True)
    buffers.position.add_(1)
    buffers.tokens.index_copy_(1, buffers.position.long(), chosen)


def _normed(
    plan: StepPlan, program: StepProgram, name: str, norm: Norm, unadded: bool
) -> tuple[torch.Tensor, Norm | None]:
    """What the next projection reads, and the norm that it has to apply itself, if any.

    `name` is the range of a norm that is a launch of its own. `unadded`: a projection came before,
    whose output is not in the residual stream yet if additions are left to the norms.
    """
    x, out, pdl = plan.buffers.x, plan.buffers.normed, plan.pdl
    if plan.spec.uses("norm"):
        return x, norm
    with program.range(name):
        if unadded and not plan.spec.uses("residual"):
            program.add(rms_norm_residual(plan.buffers.added, x, norm, out, pdl))
        else:
            program.add(rms_norm(x, norm, out, pdl))
    return out, None


def _add_product(
    plan: StepPlan,
    program: StepProgram,
    name: str,
    x: torch.Tensor,
    weight: WeightMatrix,
    tile: Tile,
) -> None:
    """Add W x to the residual stream, or leave that to the norm that comes next."""
    buffers = plan.buffers
    if plan.spec.uses("residual"):
        with program.range(f"{name}+residual"):
            program.add(linear_residual(x, weight, buffers.x, tile, plan.workspace, plan.pdl))
        return
    with program.range(name):
        program.add(linear(x, weight, buffers.added, _unsplit(tile), pdl=plan.pdl))
    if plan.spec.uses("norm"):
        with program.range("residual"):
            buffers.x.add_(buffers.added)
            program.uses_torch()


def _unsplit(tile: Tile) -> Tile:
    """The same tile for a launch in which nothing adds up the parts of a split."""
    return replace(tile, splits=1)
