"""One attention block of a decode step, input norm to O-projection and residual: eager and fused.

Both decode one token after the same `BlockInputs`, repeatedly at the same position.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache

from decodescope.kernels.host.operation import Launch
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.plan import step_plan
from decodescope.variants.steps.fused.rope_tables import rope_table
from decodescope.variants.steps.fused.tiling.shapes import StepTiles

_INPUT_SEED = 1


@dataclass(frozen=True, slots=True)
class BlockInputs:
    """x [batch, hidden], and K and V [batch, KV heads, length, head_dim] of the previous tokens."""

    x: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    @property
    def length(self) -> int:
        """Tokens in the KV cache, and so the position of the one being decoded."""
        return int(self.keys.shape[2])

    def float(self) -> "BlockInputs":
        """The same numbers in float32."""
        return BlockInputs(self.x.float(), self.keys.float(), self.values.float())


@dataclass(frozen=True, slots=True)
class Subject:
    """A model's first layer at one cache length, and how its fused block is launched."""

    model: Any
    parts: FusedModel
    inputs: BlockInputs
    tiles: StepTiles
    pdl: bool


def random_inputs(parts: FusedModel, batch: int, length: int) -> BlockInputs:
    """Normal numbers in the model's dtype, on its device."""
    like = parts.final_norm.weight
    generator = torch.Generator(like.device).manual_seed(_INPUT_SEED + length)
    first = parts.layers[0]
    rows = (batch, first.kv_heads, length, first.head_dim)
    x, keys, values = (
        torch.empty(shape, dtype=like.dtype, device=like.device).normal_(generator=generator)
        for shape in ((batch, parts.hidden), rows, rows)
    )
    return BlockInputs(x, keys, values)


class GrowingCache:
    """transformers' `DynamicCache` of one layer; `rewind` costs two assignments."""

    def __init__(self, inputs: BlockInputs) -> None:
        self.cache = DynamicCache()
        self.cache.update(inputs.keys, inputs.values, 0)
        layer = self.cache.layers[0]
        self._before = layer.keys, layer.values

    def rewind(self) -> None:
        """Forget the token that was decoded."""
        layer = self.cache.layers[0]
        layer.keys, layer.values = self._before


class FixedCache:
    """A static cache of exactly the rows that attention sees; each write goes to the last row.

    transformers' own also counts positions on the device, in launches that do not belong to the
    block: without them the eager block in a graph is at its fastest.
    """

    def __init__(self, inputs: BlockInputs) -> None:
        self._keys, self._values = _with_free_row(inputs.keys), _with_free_row(inputs.values)
        self._row = torch.full((1,), inputs.length, device=inputs.keys.device)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write K and V [batch, KV heads, 1, head_dim]; all rows, as transformers' caches do."""
        self._keys.index_copy_(2, self._row, keys)
        self._values.index_copy_(2, self._row, values)
        return self._keys, self._values


class EagerBlock:
    """The modules of a transformers model's decoder layer, called as it calls them."""

    def __init__(self, model: Any, layer: Any, inputs: BlockInputs) -> None:
        self._layer = layer
        self._inputs = inputs
        position = torch.full((1, 1), inputs.length, device=inputs.x.device)
        self._rotation = model.model.rotary_emb(inputs.x, position)

    def __call__(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        """x [batch, 1, hidden] after the block."""
        attended, _ = self._layer.self_attn(
            hidden_states=self._layer.input_layernorm(x),
            position_embeddings=self._rotation,
            attention_mask=None,
            past_key_values=cache,
        )
        out: torch.Tensor = x + attended
        return out

    def output(self) -> torch.Tensor:
        """The block after its inputs, with a cache of its own; [batch, hidden]."""
        return self(self._inputs.x[:, None], GrowingCache(self._inputs).cache)[:, 0]


class FusedBlock:
    """The block's operations of a fused step, up to O; the result replaces `x` [batch, hidden]."""

    def __init__(self, subject: Subject) -> None:
        inputs, parts = subject.inputs, subject.parts
        workload = DecodeWorkload(len(inputs.x), inputs.length, 1)
        rope = rope_table(subject.model, workload.cache_length, inputs.x.device)
        one_layer = replace(parts, layers=parts.layers[:1])
        plan = step_plan(VariantSpec("fused"), one_layer, {"": rope}, workload, subject.tiles)
        keys, values = plan.cache.layer(0)
        keys.copy_(_with_free_row(inputs.keys))
        values.copy_(_with_free_row(inputs.values))
        plan.buffers.position.fill_(inputs.length)
        plan.buffers.q.fill_(float("nan"))
        plan.buffers.attended.fill_(float("nan"))
        self.x = plan.buffers.x.copy_(inputs.x)
        _, *operations = (placed.operation for placed in step_operations(plan))
        ends = [isinstance(one, LinearResidual) for one in operations]
        self._operations = operations[: ends.index(True) + 1]
        self._pdl = subject.pdl
        self._launches: dict[bool, list[Launch]] = {}

    def launch(self, follows: bool) -> None:
        """`follows`: another block was launched right before, so even the first launch may overlap
        with it."""
        if follows not in self._launches:
            self._launches[follows] = [
                one
                for index, operation in enumerate(self._operations)
                for one in operation.run(self._pdl and (follows or index > 0))
            ]
            return
        for launch in self._launches[follows]:
            launch()


@torch.no_grad()
def reference_output(model: Any, inputs: BlockInputs) -> torch.Tensor:
    """The block in float32 from the same rounded weights and inputs; [batch, hidden]."""
    layer = deepcopy(model.model.layers[0]).float()
    return EagerBlock(model, layer, inputs.float()).output()


def _with_free_row(rows: torch.Tensor) -> torch.Tensor:
    """K or V with one more row, which is NaN until it is written."""
    return torch.cat((rows, torch.full_like(rows[:, :, :1], float("nan"))), dim=2)
