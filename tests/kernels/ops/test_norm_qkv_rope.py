from dataclasses import dataclass, replace

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import QkNorm, WeightMatrix
from decodescope.kernels.ops.norm_qkv_rope import (
    NormQkvRope,
    norm_qkv_rope_reference,
    qkv_workspace,
)
from decodescope.kernels.ops.rope import RopeTable

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@dataclass(frozen=True)
class Shape:
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    capacity: int
    tile: Tile
    batch: int = 1
    distance: int = 0

    @property
    def rows(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def workspace(self, normed_heads: int) -> tuple[int, int]:
        heads = self.heads + 2 * self.kv_heads
        return qkv_workspace(heads, normed_heads, self.head_dim, self.tile, self.batch)


# Tiles that divide a head, that do not, and that are larger than one.
SHAPES = [
    Shape(33, 3, 1, 32, 3, Tile(16, 64)),
    Shape(64, 2, 1, 80, 3, Tile(64, 32, num_stages=2)),
    Shape(77, 5, 1, 96, 3, Tile(128, 128)),
    Shape(300, 1, 1, 42, 2, Tile(32, 128, num_stages=2)),
    Shape(100, 2, 2, 32, 3, Tile(128, 32, num_stages=4)),
    # The last split has no column.
    Shape(64, 3, 1, 32, 3, Tile(32, 16, splits=3), batch=2),
    Shape(77, 2, 1, 20, 5, Tile(16, 16, splits=2), batch=3),
    Shape(40, 2, 2, 10, 3, Tile(16, 64), batch=8),
    Shape(51, 3, 1, 42, 3, Tile(32, 32, splits=2), batch=16),
    Shape(51, 2, 1, 42, 3, Tile(32, 64), batch=17),
    Shape(40, 1, 1, 32, 3, Tile(16, 64), batch=64),
    Shape(50, 2, 1, 40, 3, Tile(16, 64), distance=15),
    Shape(40, 1, 1, 34, 3, Tile(16, 64), distance=1),
    Shape(50, 1, 1, 40, 3, Tile(32, 16, splits=3), batch=3, distance=13),
    Shape(40, 2, 1, 34, 3, Tile(16, 64), batch=2, distance=1),
]


class Case:
    """One projection: inputs, and outputs with poison before and after them."""

    def __init__(
        self, make, shape: Shape, at: int, normed: bool = True, qk: bool = False, size: float = 1.0
    ) -> None:
        self.make, self.shape, self.at = make, shape, at
        self.x = make.random(shape.batch, shape.hidden) * size
        self.norm = make.norm(shape.hidden) if normed and shape.batch == 1 else None
        odd = shape.heads % 2 == 1
        self.qkv = make.weight(shape.rows, shape.hidden, scaled=odd, biased=shape.kv_heads == 1)
        # All angles differ, and the attention scaling is not 1.
        angles = make.random(shape.capacity, shape.head_dim // 2, dtype=torch.float32) * 3
        self.rope = RopeTable(1.2 * angles.cos(), 1.2 * angles.sin(), shape.distance)
        self.qk_norm = make.qk_norm(shape.head_dim) if qk else None
        self.workspace = make.workspace(*shape.workspace(shape.heads + shape.kv_heads))

    def run(self) -> list[torch.Tensor]:
        """q, K cache and V cache, each between NaN that must stay."""
        shape, batch = self.shape, self.shape.batch
        cache = (shape.kv_heads, shape.capacity, shape.head_dim)
        storages = [
            self.make.poisoned(3 * batch, *size)
            for size in ((shape.heads, shape.head_dim), cache, cache)
        ]
        outputs = [storage[batch : 2 * batch] for storage in storages]
        position = self.make.position(self.at)
        NormQkvRope(
            self.x,
            self.norm,
            self.qkv,
            self.rope,
            position,
            *outputs,
            shape.tile,
            self.workspace,
            self.qk_norm,
        ).launch()
        assert position.item() == self.at
        for storage in storages:
            assert storage[:batch].isnan().all()
            assert storage[2 * batch :].isnan().all()
        return outputs

    def assert_right(self, assert_close) -> tuple[torch.Tensor, torch.Tensor]:
        """Checks q and the new rows; gives the caches."""
        q, *caches = self.run()
        new_rows = (q, *(cache[:, :, self.at] for cache in caches))
        for out, expected in zip(new_rows, self.expected(self.at), strict=True):
            assert_close(out, expected)
        return caches[0], caches[1]

    def expected(self, row: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, and the new rows of K and V, rotated by this row of the table."""
        heads = (self.shape.heads, self.shape.kv_heads)
        return norm_qkv_rope_reference(
            self.x, self.norm, self.qkv, self.rope, row, *heads, self.qk_norm
        )


def others(cache: torch.Tensor, at: int) -> torch.Tensor:
    return torch.cat((cache[:, :, :at], cache[:, :, at + 1 :]), dim=2)


def assert_repeats(case: Case) -> None:
    for one, other in zip(case.run(), case.run(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("qk", "dtype"), [(False, torch.bfloat16), *((True, dtype) for dtype in DTYPES)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_q_and_the_new_rows(
    shape: Shape, qk: bool, dtype: torch.dtype, inputs, assert_close, assert_reset
) -> None:
    at = 0 if shape.hidden == 64 and shape.batch == 1 else shape.capacity - 1
    case = Case(inputs(dtype), shape, at, normed=shape.hidden not in (77, 64), qk=qk)
    k_cache, v_cache = case.assert_right(assert_close)
    assert others(k_cache, at).isnan().all()
    assert others(v_cache, at).isnan().all()
    assert_reset(case.workspace)


@pytest.mark.parametrize("rows_of_v", [True, False])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[4], SHAPES[5], SHAPES[13]])
def test_v_has_a_norm_without_a_weight_and_may_be_k(
    shape: Shape, rows_of_v: bool, inputs, assert_close, assert_reset
) -> None:
    make = inputs(torch.float32)
    case = Case(make, shape, 1, qk=True)
    assert case.qk_norm is not None
    case.qk_norm = replace(case.qk_norm, norms_v=True)
    if not rows_of_v:
        rows = shape.rows - shape.kv_heads * shape.head_dim
        case.qkv = make.weight(rows, shape.hidden, scaled=True, biased=True)
    case.workspace = make.workspace(*shape.workspace(shape.heads + 2 * shape.kv_heads))
    case.assert_right(assert_close)
    assert_repeats(case)
    assert_reset(case.workspace)
    if not rows_of_v:
        # The reference: V is what K is before its norm and rotation.
        parts = case.qkv.data, case.qkv.scale, case.qkv.bias
        first = shape.heads * shape.head_dim
        whole = WeightMatrix(*(torch.cat((one, one[first:])) for one in parts if one is not None))
        expected, case.qkv = case.expected(1), whole
        assert all(map(torch.equal, case.expected(1), expected))


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[5]])
def test_without_rows_of_k_only_q_is_written(
    shape: Shape, qk: bool, inputs, assert_close, assert_reset
) -> None:
    make = inputs(torch.float32)
    case = Case(make, shape, 1, qk=qk)
    expected = case.expected(1)[0]
    rows = slice(shape.heads * shape.head_dim)
    parts = (None if one is None else one[rows] for one in case.qkv.pointers)
    case.qkv = WeightMatrix(*parts)
    q, *caches = case.run()
    assert_close(q, expected)
    assert all(cache.isnan().all() for cache in caches)
    assert_reset(case.workspace)


@pytest.mark.parametrize(
    ("format", "dtype"), [*zip(("fp8_e4m3", "fp8_e5m2", "int8"), DTYPES, strict=True)]
)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(64, 2, 1, 80, 3, Tile(64, 32, splits=2), batch=5),
        Shape(51, 1, 1, 42, 3, Tile(32, 64), batch=17),
        Shape(48, 1, 1, 32, 3, Tile(64, 64), batch=64),
    ],
)
def test_a_batch_of_narrow_weights(
    shape: Shape, dtype: torch.dtype, format: str, inputs, assert_close, assert_reset
) -> None:
    make = inputs(dtype)
    case = Case(make, shape, 1, qk=shape.hidden == 64)
    case.qkv = make.narrow(shape.rows, shape.hidden, format, biased=shape.hidden == 48)
    case.assert_right(assert_close)
    assert_reset(case.workspace)


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[6]])
def test_a_second_run_gives_the_same_bits(shape: Shape, qk: bool, inputs) -> None:
    assert_repeats(Case(inputs(torch.bfloat16), shape, 1, qk=qk))


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("beyond", [0, 7])
def test_past_the_cache_only_q_is_written(
    beyond: int, batch: int, qk: bool, inputs, assert_close, assert_reset
) -> None:
    shape = replace(SHAPES[1], batch=batch)
    at = shape.capacity + beyond
    case = Case(inputs(torch.float32), replace(shape, capacity=at + 1), at, qk=qk)
    case.shape = shape
    q, k_cache, v_cache = case.run()
    assert_close(q, case.expected(at)[0])
    assert k_cache.isnan().all()
    assert v_cache.isnan().all()
    assert_reset(case.workspace)


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("at", [-(2**31), -1, 2**31 - 1])
def test_outside_the_table_its_nearest_row_is_read(
    at: int, batch: int, qk: bool, inputs, assert_close
) -> None:
    shape = replace(SHAPES[0], batch=batch)
    case = Case(inputs(torch.float32), shape, at, qk=qk)
    q, k_cache, v_cache = case.run()
    assert_close(q, case.expected(min(max(at, 0), 2))[0])
    assert k_cache.isnan().all()
    assert v_cache.isnan().all()


@pytest.mark.parametrize("batch", [1, 2])
def test_infinite_values_are_stored_as_they_are(batch: int, inputs) -> None:
    shape = replace(SHAPES[0], batch=batch)
    case = Case(inputs(torch.float32), shape, 1)
    case.qkv.bias[(shape.heads + shape.kv_heads) * shape.head_dim] = float("inf")
    _, _, v_cache = case.run()
    assert v_cache[0, 0, 1, 0] == float("inf")
    assert v_cache[0, 0, 1, 1:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(33, 3, 1, 32, 3, Tile(16, 64)),
        Shape(40, 4, 4, 20, 3, Tile(16, 64)),
        Shape(77, 6, 2, 34, 3, Tile(64, 128), distance=1),
    ],
)
def test_one_norm_for_all_heads(
    shape: Shape, dtype: torch.dtype, inputs, assert_close, assert_reset
) -> None:
    make = inputs(dtype)
    case = Case(make, shape, 1, normed=False)
    q_weight, k_weight = (
        make.norm(heads * shape.head_dim, seed=7 + heads).weight
        for heads in (shape.heads, shape.kv_heads)
    )
    case.qk_norm = QkNorm(q_weight, k_weight, 1e-3)
    k_cache, _ = case.assert_right(assert_close)
    assert others(k_cache, 1).isnan().all()
    assert_reset(case.workspace)
    assert_repeats(case)


@pytest.mark.parametrize("qk", [False, True])
def test_large_activations_in_fp16(qk: bool, inputs, assert_close) -> None:
    Case(inputs(torch.float16), SHAPES[2], 1, qk=qk, size=15_000.0).assert_right(assert_close)


@pytest.mark.parametrize("qk", [False, True])
def test_agrees_with_transformers_in_fp32(qk: bool, inputs) -> None:
    shape = Shape(64, 4, 2, 32, 8, Tile(16, 64))
    case = Case(inputs(torch.float32), shape, 5, qk=qk)
    config = LlamaConfig(hidden_size=128, num_attention_heads=4, head_dim=32)
    rotary = LlamaRotaryEmbedding(config).to(case.x.device)
    every = torch.arange(shape.capacity, device=case.x.device)[None]
    cos, sin = rotary(case.x, every)
    case.rope = RopeTable(cos[0, :, :16].contiguous(), sin[0, :, :16].contiguous())

    def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        module = LlamaRMSNorm(x.shape[-1], eps=eps).to(x.device).requires_grad_(False)
        module.weight.copy_(weight)
        return module(x)

    x = normed(case.x, case.norm.weight, case.norm.eps)
    product = torch.nn.functional.linear(x, case.qkv.dense(torch.float32), case.qkv.bias)
    q, k, v = product.view(1, 1, -1, shape.head_dim).transpose(1, 2).split([4, 2, 2], dim=1)
    if case.qk_norm is not None:
        q = normed(q, case.qk_norm.q_weight, case.qk_norm.eps)
        k = normed(k, case.qk_norm.k_weight, case.qk_norm.eps)
    q, k = apply_rotary_pos_emb(q, k, cos[:, 5:6], sin[:, 5:6])
    q_out, k_cache, v_cache = case.run()
    outputs = (q_out, k_cache[:, :, 5], v_cache[:, :, 5])
    expected = [rows[:, :, 0] for rows in (q, k, v)]
    for out, reference, rows in zip(outputs, case.expected(5), expected, strict=True):
        torch.testing.assert_close(reference.float(), rows, atol=3e-6, rtol=1e-5)
        torch.testing.assert_close(out, rows, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("tile", "partials", "counters", "complaint"),
    [
        (Tile(8, 16), 400, 9, "at least 16 x 16"),
        (Tile(16, 16), 3 * 20 * 3 - 1, 9, "needs 180 and 3"),
        (Tile(16, 16), 3 * 20 * 3, 2, "needs 180 and 3"),
        # Two splits of four heads in two blocks each.
        (Tile(16, 16, splits=2), 2 * 8 * 16 * 16 + 179, 11, "needs 4276 and 11"),
        (Tile(16, 16, splits=2), 2 * 8 * 16 * 16 + 180, 10, "needs 4276 and 11"),
    ],
)
def test_a_batch_refuses(tile: Tile, partials: int, counters: int, complaint: str, inputs) -> None:
    make = inputs(torch.float32)
    case = Case(make, replace(SHAPES[6], tile=tile), 0, qk=True)
    case.workspace = make.workspace(partials, counters)
    with pytest.raises(ValueError, match=complaint):
        case.run()


def test_only_a_qk_norm_needs_a_workspace(inputs) -> None:
    make = inputs(torch.float32)
    case = Case(make, SHAPES[0], 0)
    case.workspace = make.workspace(0, 0)
    assert not case.run()[0].isnan().any()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("tile", [Tile(4, 2048, 4, 2), Tile(16, 512, 8, 9), Tile(2, 1024, 2, 3)])
@pytest.mark.parametrize(("hidden", "head_dim"), [(4096, 128), (3001, 80), (2048, 256)])
def test_heads_of_many_programs_repeat_bit_for_bit(
    hidden: int,
    head_dim: int,
    tile: Tile,
    qk: bool,
    dtype: torch.dtype,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    case = Case(inputs(dtype), Shape(hidden, 16, 4, head_dim, 9, tile), 7, qk=qk)
    first = None
    for _ in range(20):
        q, k_cache, v_cache = case.run()
        new_rows = (q, k_cache[:, :, 7], v_cache[:, :, 7])
        assert first is None or all(map(torch.equal, new_rows, first))
        first = new_rows
    case.assert_right(assert_close)
    assert_reset(case.workspace)


@pytest.mark.gpu
def test_cache_rows_beyond_32_bit_offsets_are_written(inputs) -> None:
    make = inputs(torch.float16)
    # The last head of each cache starts at element 2^31.
    kv_heads, capacity, head_dim = 3, 2**23, 128
    x, qkv = make.random(1, 64), make.weight((1 + 2 * kv_heads) * head_dim, 64)
    caches = [
        torch.zeros(1, kv_heads, capacity, head_dim, dtype=torch.float16, device="cuda")
        for _ in range(2)
    ]
    table = torch.ones(capacity, head_dim // 2, device="cuda")
    rope = RopeTable(table, table)
    q, position = make.poisoned(1, 1, head_dim), make.position(capacity - 1)
    NormQkvRope(
        x, None, qkv, rope, position, q, *caches, Tile(8, 64), make.workspace(0, 0)
    ).launch()
    _, k, v = norm_qkv_rope_reference(x, None, qkv, rope, 3, 1, kv_heads)
    for cache, rows in zip(caches, (k, v), strict=True):
        torch.testing.assert_close(cache[:, :, -1].double(), rows, atol=2e-3, rtol=2e-3)
        assert cache[:, :, -2].count_nonzero().item() == 0
