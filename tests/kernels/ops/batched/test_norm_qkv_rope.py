from dataclasses import dataclass

import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import QkNorm
from decodescope.kernels.ops.batched.norm_qkv_rope import norm_qkv_rope
from decodescope.kernels.ops.norm_qkv_rope import norm_qkv_rope_reference
from decodescope.kernels.ops.rope import RopeTable

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@dataclass(frozen=True)
class Shape:
    batch: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    capacity: int
    tile: Tile


class Case:
    """One projection: inputs, poisoned outputs."""

    def __init__(self, make, shape: Shape, at: int, normed: bool = True, qk: bool = False) -> None:
        heads, kv_heads, head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.make, self.shape = make, shape
        self.x = make.random(shape.batch, shape.hidden)
        self.norm = make.norm(shape.hidden) if normed else None
        rows = (heads + 2 * kv_heads) * head_dim
        self.qkv = make.weight(rows, shape.hidden, scaled=heads == 3, biased=shape.batch % 2 == 1)
        # Angles of no pair of positions or elements are alike, and the scaling is not 1.
        angles = make.random(shape.capacity, head_dim // 2, dtype=torch.float32) * 3
        self.rope = RopeTable(1.2 * angles.cos(), 1.2 * angles.sin())
        self.position = torch.tensor([at], dtype=torch.int32, device=make.device)
        weights = (make.norm(head_dim, seed=7).weight, make.norm(head_dim, seed=8).weight)
        self.qk_norm = QkNorm(*weights, 1e-3) if qk else None
        self.workspace = make.workspace((heads + kv_heads) * head_dim * shape.batch, 9)

    def outputs(self) -> list[torch.Tensor]:
        shape = self.shape
        q = self.make.poisoned(shape.batch, shape.heads, shape.head_dim)
        cache = (shape.batch, shape.kv_heads, shape.capacity, shape.head_dim)
        return [q, self.make.poisoned(*cache), self.make.poisoned(*cache)]

    def run(self) -> list[torch.Tensor]:
        out = self.outputs()
        inputs = (self.x, self.norm, self.qkv, self.rope, self.position)
        norm_qkv_rope(*inputs, *out, self.shape.tile, self.workspace, self.qk_norm)
        assert not self.workspace.counters.any()
        return out


SHAPES = [
    Shape(1, 32, 2, 1, 32, 4, Tile(16, 32)),
    Shape(2, 64, 3, 1, 32, 3, Tile(32, 64)),
    Shape(3, 77, 2, 1, 20, 5, Tile(16, 64)),
    Shape(8, 40, 2, 2, 10, 3, Tile(16, 64)),
    Shape(16, 51, 3, 1, 42, 3, Tile(32, 32)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("qk", [False, True])
def test_q_and_the_new_rows(
    shape: Shape, qk: bool, dtype: torch.dtype, inputs, assert_close
) -> None:
    at = shape.capacity - 1
    case = Case(inputs(dtype), shape, at, normed=shape.batch != 2, qk=qk)
    q, k_cache, v_cache = case.run()
    expected = norm_qkv_rope_reference(
        case.x, case.norm, case.qkv, case.rope, at, shape.heads, shape.kv_heads, case.qk_norm
    )
    for out, reference in zip((q, k_cache[:, :, at], v_cache[:, :, at]), expected, strict=True):
        assert_close(out, reference)
    assert k_cache[:, :, :at].isnan().all()
    assert v_cache[:, :, :at].isnan().all()
    again = case.run()
    assert torch.equal(q, again[0])
    assert torch.equal(k_cache[:, :, at], again[1][:, :, at])
    assert torch.equal(v_cache[:, :, at], again[2][:, :, at])


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("beyond", [0, 5])
def test_past_the_cache_only_q_is_written(qk: bool, beyond: int, inputs) -> None:
    shape = SHAPES[2]
    case = Case(inputs(torch.float32), shape, shape.capacity + beyond, qk=qk)
    q, k_cache, v_cache = case.run()
    assert not q.isnan().any()
    assert k_cache.isnan().all()
    assert v_cache.isnan().all()


def test_infinite_values_are_stored_as_they_are(inputs) -> None:
    make = inputs(torch.float32)
    shape = SHAPES[0]
    case = Case(make, shape, 1)
    v_row = (shape.heads + shape.kv_heads) * shape.head_dim
    case.qkv.bias[v_row] = float("inf")
    _, _, v_cache = case.run()
    assert v_cache[0, 0, 1, 0] == float("inf")
    assert v_cache[0, 0, 1, 1:].isfinite().all()


@pytest.mark.parametrize(
    ("tile", "partials", "counters", "complaint"),
    [
        (Tile(8, 16), 400, 9, "at least 16 x 16"),
        (Tile(16, 16), 3 * 20 * 3 - 1, 9, "needs 180 and 3"),
        (Tile(16, 16), 3 * 20 * 3, 2, "needs 180 and 3"),
    ],
)
def test_refuses_what_it_cannot_run(
    tile: Tile, partials: int, counters: int, complaint: str, inputs
) -> None:
    make = inputs(torch.float32)
    case = Case(make, SHAPES[2], 0, qk=True)
    arguments = (case.x, case.norm, case.qkv, case.rope, case.position, *case.outputs())
    with pytest.raises(ValueError, match=complaint):
        norm_qkv_rope(*arguments, tile, make.workspace(partials, counters), case.qk_norm)
