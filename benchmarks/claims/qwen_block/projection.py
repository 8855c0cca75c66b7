"""Q, K and V, RoPE and the write into the KV cache: PyTorch's operators beside one launch."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

from benchmarks.block.attention_block import Subject
from benchmarks.claims.entrants import pytorch
from benchmarks.claims.racing import Racing, Tensors, Work, entrant_of
from benchmarks.claims.report import Race
from benchmarks.kernels.kernel_bench import TOLERANCES
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope
from decodescope.variants.steps.fused.rope_tables import rope_table

PYTORCH, OURS = "PyTorch", "norm_qkv_rope"
# The projection, cosine and sine, both products, their sum.
_ROUNDINGS = 6


def race_projection(racing: Racing, subject: Subject) -> Race:
    """Both ways from the normed x of one token after the subject's, in float16."""
    parts, inputs, length = subject.parts, subject.inputs, subject.inputs.length
    layer = parts.layers[0]
    x, device = inputs.x, inputs.x.device
    heads, kv_heads, size = parts.heads, layer.kv_heads, layer.head_dim
    rope = rope_table(subject.model, length + 1, device)
    position = torch.tensor([length], dtype=torch.int32, device=device)
    q = torch.empty(1, heads, size, dtype=x.dtype, device=device)
    keys, values = (
        torch.randn(1, kv_heads, length + 1, size, device=device).to(x.dtype) for _ in range(2)
    )
    space = new_workspace(1, 1, device)

    def operation(qkv: WeightMatrix) -> NormQkvRope:
        tile = subject.tiles["qkv"]
        return NormQkvRope(x, None, qkv, rope, position, q, keys, values, tile, space)

    first = operation(layer.qkv)
    work = Work(first.bytes_moved(length))
    copies = racing.copies(work) - 1
    operations = [first, *(operation(_copied(first.qkv)) for _ in range(copies))]
    cos, sin = (one[length].repeat(2).to(x.dtype) for one in (rope.cos, rope.sin))

    def rotated(heads: torch.Tensor) -> torch.Tensor:
        low, high = heads.chunk(2, dim=-1)
        return heads * cos + torch.cat((-high, low), dim=-1) * sin

    def sequence(matrices: Tensors, biases: Tensors) -> Tensors:
        found = zip(matrices, biases, strict=True)
        new_q, k, v = (functional.linear(x, *one).view(1, -1, size) for one in found)
        keys[:, :, length] = rotated(k)
        values[:, :, length] = v
        return rotated(new_q), keys[:, :, length], values[:, :, length]

    def call(qkv: WeightMatrix) -> Callable[[], Tensors]:
        rows = [heads * size, kv_heads * size, kv_heads * size]
        assert qkv.bias is not None
        return partial(sequence, torch.split(qkv.data, rows), torch.split(qkv.bias, rows))

    entrants = [
        pytorch(
            PYTORCH,
            "three products, rotate_half of q and k, two writes",
            [call(one.qkv) for one in operations],
            first.reference(length),
            _ROUNDINGS,
        ),
        entrant_of(operations, "without its norm: 1 launch", TOLERANCES["fp16"], length),
    ]
    return racing.race(f"Q, K, V, RoPE and KV write after {length} tokens", work, entrants)


def _copied(matrix: WeightMatrix) -> WeightMatrix:
    assert matrix.bias is not None
    return WeightMatrix(matrix.data.clone(), None, matrix.bias.clone())
