"""The operations of one decode step, in their order: 5 a layer and 2 with every fusion.

The norms of a batch are launches of their own: 7 a layer and 3. With E4M3 activations (`w8a8`) a
launch before each product quantises what it reads, and applies the norm: 9 a layer and 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from msgspec.structs import asdict

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.kv_cache import KvScales
from decodescope.kernels.host.operation import Launch, Operation, Tensors
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.kernels.ops.embedding import Embed
from decodescope.kernels.ops.kv_write import KvWrite
from decodescope.kernels.ops.linear import Linear
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope
from decodescope.kernels.ops.quantize_rows import QuantizeRows
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.kernels.ops.rope import Rotate
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.kernels.sampling.sample import sample
from decodescope.kernels.sampling.workspace import SamplingWorkspace
from decodescope.variants.steps.fused.model_parts import FusedLayer
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import PlacedOperation
from decodescope.variants.steps.fused.torch_operators import (
    TorchOperator,
    choose_largest,
    static_attention,
)

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Source:
    """The inputs of a product: x, the norm that it has to apply itself, if any, and the scales of
    E4M3 x."""

    x: torch.Tensor
    norm: Norm | None = None
    scale: torch.Tensor | None = None


def step_operations(plan: StepPlan, keep_logits: bool = False) -> tuple[PlacedOperation, ...]:
    """The operations that decode the token at the device's position: they write the next token
    behind it and move the position on by one. With `keep_logits` the logits stay in their buffer.
    """
    builder = _Builder(plan)
    builder.step(keep_logits)
    return tuple(builder.operations)


def weight_bytes(operations: tuple[PlacedOperation, ...]) -> int:
    """Bytes of weights that the operations read, each tensor once."""
    tensors = [tensor for placed in operations for tensor in placed.operation.weights]
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())


@dataclass(frozen=True, slots=True)
class Sample(Operation):
    """Draws the next tokens: `sample` on these arguments."""

    logits: torch.Tensor
    position: torch.Tensor
    tokens: torch.Tensor
    workspace: SamplingWorkspace
    sampling: SamplingSettings

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        memory = self.logits, self.position, self.tokens, self.workspace
        return sample(*memory, **asdict(self.sampling), pdl=pdl)


class _Builder:
    """Adds the operations of `plan` to a list, each under the path of its ranges."""

    def __init__(self, plan: StepPlan) -> None:
        self.operations: list[PlacedOperation] = []
        self._plan = plan
        self._spec = plan.spec
        self._buffers = plan.buffers
        self._tiles = plan.tiles
        self._single = len(plan.buffers.x) == 1
        # In a product, every program would norm all tokens of a batch.
        self._norm_inside = plan.spec.uses("norm") and (self._single or plan.spec.fp8_x)

    def step(self, keep_logits: bool) -> None:
        parts, buffers = self._plan.parts, self._buffers
        embed = Embed(parts.embedding, buffers.tokens, buffers.position, buffers.x)
        self._add("model/embedding", embed)
        if not self._spec.uses("attention"):
            self._torch("model/embedding", self._plan.visible.update, buffers.position)
        for index, layer in enumerate(parts.layers):
            self._attention(f"model/layer.{index}", index, layer)
            self._mlp(f"model/layer.{index}", layer)
        self._head(keep_logits)
        self._choose(keep_logits)

    def _add(self, path: str, operation: Operation) -> None:
        self.operations.append(PlacedOperation(tuple(path.split("/")), operation))

    def _torch(self, path: str, function: Callable[..., object], *arguments: object) -> None:
        self._add(path, TorchOperator(partial(function, *arguments)))

    def _attention(self, path: str, index: int, layer: FusedLayer) -> None:
        rows = self._plan.cache.layer(index)
        added = index == 0
        source = self._normed(f"{path}/input_norm", layer.input_norm, layer.qkv, added)
        path += "/attention" if source.norm is None else "/input_norm+attention"
        scales = self._plan.cache.scales(index)
        q = self._queries(path, layer, source, rows, scales)
        attended = self._attended(f"{path}/decode_attention", layer, q, rows, scales)
        self._add_product(f"{path}/o_proj", attended, layer.o, self._tiles.o)

    def _queries(
        self,
        path: str,
        layer: FusedLayer,
        source: _Source,
        rows: Pair,
        scales: KvScales | None,
    ) -> torch.Tensor:
        """Write the new rows of K and V; returns the rotated queries [batch, heads, head_dim]."""
        plan, buffers, position = self._plan, self._buffers, self._buffers.position
        if self._spec.uses("rope"):
            fused = NormQkvRope(
                source.x,
                source.norm,
                layer.qkv,
                plan.rope,
                position,
                buffers.q,
                *rows,
                self._tiles.qkv,
                plan.workspace,
                layer.qk_norm,
                scales,
                source.scale,
            )
            self._add(f"{path}/qkv+rope+kv_write", fused)
            return buffers.q
        q, k, v = self._projected(f"{path}/qkv", layer, source)
        if (norms := layer.qk_norm) is not None:
            self._add(f"{path}/qk_norm", RmsNorm(q, Norm(norms.q_weight, norms.eps), q))
            self._add(f"{path}/qk_norm", RmsNorm(k, Norm(norms.k_weight, norms.eps), k))
        self._add(f"{path}/rope", Rotate(q, k, plan.rope, position))
        self._add(f"{path}/kv_write", KvWrite(k, v, *rows, position, scales))
        return q

    def _projected(self, path: str, layer: FusedLayer, source: _Source) -> Tensors:
        """Q, K and V [batch, heads, head_dim] as the products give them; Q is contiguous."""
        buffers, tile = self._buffers, self._tiles.qkv
        outputs = (buffers.q, buffers.k, buffers.v)
        if not self._spec.uses("qkv"):
            rows = [out[0].numel() for out in outputs]
            for weight, out in zip(_row_blocks(layer.qkv, rows), outputs, strict=True):
                self._linear(path, source, weight, out.flatten(1), tile)
            return outputs
        self._linear(path, source, layer.qkv, buffers.qkv, tile)
        heads = buffers.qkv.view(len(source.x), -1, self._plan.parts.head_dim)
        q, k, v = torch.split(heads, [out.shape[1] for out in outputs], dim=1)
        if not q.is_contiguous():
            self._torch(path, buffers.q.copy_, q)
            q = buffers.q
        return q, k, v

    def _attended(
        self, path: str, layer: FusedLayer, q: torch.Tensor, rows: Pair, scales: KvScales | None
    ) -> torch.Tensor:
        """Attention's output, [batch, heads * head_dim]."""
        plan, out = self._plan, self._buffers.attended
        flat = out.flatten(1)
        if not self._spec.uses("attention"):
            mask = plan.visible.of(layer.window)
            self._torch(path, static_attention, q, *rows, mask, plan.parts.scale, flat)
            return flat
        fused = DecodeAttention(
            q,
            *rows,
            self._buffers.position,
            plan.parts.scale,
            out,
            self._tiles.attention,
            plan.workspace,
            layer.window,
            layer.o if plan.prefetch else None,
            scales,
        )
        self._add(path, fused)
        return flat

    def _mlp(self, path: str, layer: FusedLayer) -> None:
        buffers, tile = self._buffers, self._tiles.gate_up
        name = "post_attention_norm"
        source = self._normed(f"{path}/{name}", layer.post_attention_norm, layer.gate_up)
        path += "/mlp" if source.norm is None else f"/{name}+mlp"
        if self._spec.uses("gate_up"):
            fused = NormGateUp(
                source.x, source.norm, layer.gate_up, buffers.activation, tile, source.scale
            )
            self._add(f"{path}/gate_up+silu", fused)
        else:
            halves = _row_blocks(layer.gate_up, [self._plan.parts.intermediate] * 2)
            for weight, out in zip(halves, (buffers.gate, buffers.up), strict=True):
                self._linear(f"{path}/gate_up", source, weight, out, tile)
            self._add(f"{path}/silu", Swiglu(buffers.gate, buffers.up, buffers.activation))
        self._add_product(f"{path}/down_proj", buffers.activation, layer.down, self._tiles.down)

    def _head(self, keep_logits: bool) -> None:
        parts, buffers, tile = self._plan.parts, self._buffers, self._tiles.head
        source = self._normed("model/final_norm", parts.final_norm, parts.head)
        path = "model/lm_head" if source.norm is None else "model/final_norm+lm_head"
        if not self._spec.uses("head"):
            self._linear(path, source, parts.head, buffers.model_logits, tile)
            return
        greedy = self._plan.sampling is None
        fused = NormHead(
            source.x,
            source.norm,
            parts.head,
            buffers.tokens,
            buffers.position,
            tile,
            self._plan.workspace,
            buffers.logits if keep_logits or not greedy else None,
            greedy,
            source.scale,
            parts.dtype,
        )
        self._add(path, fused)

    def _choose(self, keep_logits: bool) -> None:
        """Choose the next tokens from the logits and move the position on, unless the head does."""
        plan, buffers, fused = self._plan, self._buffers, self._spec.uses("head")
        logits = buffers.logits if fused else buffers.model_logits
        if keep_logits and not fused:
            self._torch("sampling", buffers.logits.copy_, buffers.model_logits)
        if plan.sampling is not None:
            assert plan.draws is not None
            memory = logits, buffers.position, buffers.tokens, plan.draws
            self._add("sampling", Sample(*memory, plan.sampling))
        elif not fused:
            self._torch("sampling", choose_largest, logits, buffers.position, buffers.tokens)

    def _normed(self, path: str, norm: Norm, weight: WeightMatrix, added: bool = False) -> _Source:
        """The inputs that the product with `weight` reads of the residual stream after `norm`.

        `path` is that of a norm in a launch of its own. Unless `added`, the output of the
        projection before is not in the residual stream yet if additions are left to the norms.
        """
        buffers, x = self._buffers, self._buffers.x
        if self._norm_inside and (self._single or weight.data.element_size() == 1):
            return self._quantized(f"{path}/quantize", _Source(x, norm), weight)
        out = buffers.normed_half if weight.data.element_size() == 1 else buffers.normed
        if not (added or self._norm_inside or self._spec.uses("residual")):
            self._add(path, RmsNormResidual(self._buffers.added, x, norm, out))
        else:
            self._add(path, RmsNorm(x, norm, out))
        return self._quantized(f"{path}/quantize", _Source(out), weight)

    def _quantized(self, path: str, source: _Source, weight: WeightMatrix) -> _Source:
        """`source` with the norm applied, in E4M3, if the product with `weight` takes it so."""
        if not self._spec.fp8_x or weight.data.element_size() > 1:
            return source
        codes = self._buffers.codes[: source.x.numel()].view(source.x.shape)
        self._add(path, QuantizeRows(source.x, source.norm, codes, self._buffers.scales))
        return _Source(codes, scale=self._buffers.scales)

    def _linear(
        self, path: str, source: _Source, weight: WeightMatrix, out: torch.Tensor, tile: Tile
    ) -> None:
        tile = _unsplit(tile)
        self._add(path, Linear(source.x, weight, out, tile, source.norm, source.scale))

    def _add_product(self, path: str, x: torch.Tensor, weight: WeightMatrix, tile: Tile) -> None:
        """Add W x to the residual stream, or leave that to the norm that comes next."""
        buffers = self._buffers
        source = self._quantized(f"{path.rpartition('/')[0]}/quantize", _Source(x), weight)
        if self._spec.uses("residual"):
            memory = buffers.x, tile, self._plan.workspace
            fused = LinearResidual(source.x, weight, *memory, source.scale)
            self._add(f"{path}+residual", fused)
            return
        self._linear(path, source, weight, buffers.added, tile)
        if self._norm_inside:
            self._torch(f"{path.rpartition('/')[0]}/residual", buffers.x.add_, buffers.added)


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


def _unsplit(tile: Tile) -> Tile:
    """The same tile for a launch in which nothing adds up the parts of a split."""
    return replace(tile, splits=1)
