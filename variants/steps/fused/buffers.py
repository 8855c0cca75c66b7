"""The device memory of a fused step, allocated once: a captured graph remembers its addresses."""

from dataclasses import dataclass

import torch
import triton

from decodescope.kernels.device.attention_splits import workspace_counters, workspace_floats
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import Workspace, new_workspace
from decodescope.variants.steps.fused.model_parts import FusedModel
from decodescope.variants.steps.fused.tiling.rules import StepTiles


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """What launches hand on to each other, in the model's dtype unless told otherwise.

    Of the whole generation: `tokens` int64 [batch, capacity + 1], the id at each position, and
    `position` int32 [1], the number of tokens in the KV cache. Of one step: the residual stream `x`
    [batch, hidden], `q` and `attended` [batch, heads, head_dim], `activation` [batch, intermediate]
    and `logits` float32 [batch, vocabulary].

    Used only where a fusion is left out: `normed` and `added` [batch, hidden], `qkv` [batch, rows],
    `k` and `v` [batch, KV heads, head_dim], `gate` and `up` as `activation`, `model_logits`.
    """

    tokens: torch.Tensor
    position: torch.Tensor
    x: torch.Tensor
    q: torch.Tensor
    attended: torch.Tensor
    activation: torch.Tensor
    logits: torch.Tensor
    normed: torch.Tensor
    added: torch.Tensor
    qkv: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    model_logits: torch.Tensor


def new_buffers(parts: FusedModel, batch: int, capacity: int) -> StepBuffers:
    """Buffers for `batch` sequences of up to `capacity` cached tokens, on the model's device."""
    device = parts.embedding.device

    def zeros(*shape: int, dtype: torch.dtype = parts.embedding.dtype) -> torch.Tensor:
        return torch.zeros(batch, *shape, dtype=dtype, device=device)

    return StepBuffers(
        tokens=zeros(capacity + 1, dtype=torch.int64),
        position=torch.zeros(1, dtype=torch.int32, device=device),
        x=zeros(parts.hidden),
        q=zeros(parts.heads, parts.head_dim),
        attended=zeros(parts.heads, parts.head_dim),
        activation=zeros(parts.intermediate),
        logits=zeros(parts.vocab, dtype=torch.float32),
        normed=zeros(parts.hidden),
        added=zeros(parts.hidden),
        qkv=zeros((parts.heads + 2 * parts.kv_heads) * parts.head_dim),
        k=zeros(parts.kv_heads, parts.head_dim),
        v=zeros(parts.kv_heads, parts.head_dim),
        gate=zeros(parts.intermediate),
        up=zeros(parts.intermediate),
        model_logits=zeros(parts.vocab),
    )


def step_workspace(parts: FusedModel, batch: int, tiles: StepTiles) -> Workspace:
    """A workspace that is large enough for every launch of a step with these tiles."""
    layer = parts.layers[0]
    splits = tiles.attention.splits
    needs = [
        (0, 1),
        (batch * layer.qkv.rows, parts.heads + parts.kv_heads),
        (
            workspace_floats(batch, parts.heads, parts.head_dim, splits),
            workspace_counters(batch, parts.heads, splits),
        ),
        _split_sums(layer.o, tiles.o, batch),
        _split_sums(layer.down, tiles.down, batch),
    ]
    floats, counters = (max(sizes) for sizes in zip(*needs, strict=True))
    return new_workspace(floats, counters, parts.embedding.device)


def _split_sums(weight: WeightMatrix, tile: Tile, batch: int) -> tuple[int, int]:
    """Floats and counters of a product whose inner dimension may be split."""
    blocks = triton.cdiv(weight.rows, tile.rows)
    return tile.splits * blocks * tile.rows * batch, blocks
