import pytest
import torch

from decodescope.kernels.ops.kv_write import KvWrite, kv_write_reference
from tests.helpers.kernel_inputs import at, random
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "kv_heads", "capacity", "head_dim", "position"),
    [(1, 2, 5, 64, 0), (3, 1, 4, 80, 3), (2, 3, 7, 33, 2), (1, 1, 1, 2, 0)],
)
def test_only_the_row_of_the_position_changes(
    batch: int,
    kv_heads: int,
    capacity: int,
    head_dim: int,
    position: int,
    dtype: torch.dtype,
    device: str,
) -> None:
    k, v = random(2, batch, kv_heads, head_dim, dtype=dtype, device=device)
    k_cache, v_cache = random(2, batch, kv_heads, capacity, head_dim, dtype=dtype, device=device)
    expected_k = kv_write_reference(k, k_cache, position)
    expected_v = kv_write_reference(v, v_cache, position)
    KvWrite(k, v, k_cache, v_cache, at(position, device)).launch()
    assert torch.equal(k_cache, expected_k)
    assert torch.equal(v_cache, expected_v)


def test_step_after_step_fills_the_cache(device: str) -> None:
    batch, kv_heads, capacity, head_dim = 2, 2, 4, 16
    rows = random(capacity, 2, batch, kv_heads, head_dim, device=device)
    caches = torch.full((2, batch, kv_heads, capacity, head_dim), float("nan"), device=device)
    for position in range(capacity):
        k, v = rows[position]
        KvWrite(k, v, caches[0], caches[1], at(position, device)).launch()
    assert torch.equal(caches, rows.permute(1, 2, 3, 0, 4))


@pytest.mark.parametrize("position", [3, 4, 2**31 - 1, -1])
def test_past_the_capacity_nothing_is_written(position: int, device: str) -> None:
    k, v = random(2, 1, 2, 8, device=device)
    storage = random(2, 5, 2, 3, 8, device=device)
    before = storage.clone()
    # In the middle of larger memory, so that a write past the cache's end would be seen.
    KvWrite(k, v, storage[0, 2:3], storage[1, 2:3], at(position, device)).launch()
    assert torch.equal(storage, before)


def test_heads_of_a_fused_projection(device: str) -> None:
    batch, heads, kv_heads, head_dim = 3, 4, 2, 24
    projection = random(batch, heads + 2 * kv_heads, head_dim, device=device)
    _, k, v = projection.split([heads, kv_heads, kv_heads], dim=1)
    k_cache, v_cache = torch.zeros(2, batch, kv_heads, 3, head_dim, device=device)
    KvWrite(k, v, k_cache, v_cache, at(1, device)).launch()
    assert torch.equal(k_cache[:, :, 1], k)
    assert torch.equal(v_cache[:, :, 1], v)
    assert k_cache.count_nonzero() == v_cache.count_nonzero() == batch * kv_heads * head_dim


ROW = torch.zeros(1, 2, 8)
CACHE = torch.zeros(1, 2, 3, 8)


test_refuses = refuses(
    (KvWrite(k, v, k_cache, v_cache, at(0, "cpu")).launch, complaint)
    for k, v, k_cache, v_cache, complaint in [
        (torch.zeros(1, 8), ROW, CACHE, CACHE, r"must be \[batch, kv_heads, D\]"),
        (ROW, torch.zeros(1, 1, 8), CACHE, CACHE, r"v .*\[1, 2, 8\]"),
        (ROW, ROW, torch.zeros(1, 2, 3, 4), CACHE, r"k_cache .*\[1, 2, 3, 8\]"),
        (ROW, ROW, CACHE, torch.zeros(1, 2, 4, 8), r"v_cache .*\[1, 2, 3, 8\]"),
        (ROW, ROW, CACHE, CACHE.half(), "v_cache is torch.float16"),
        (ROW, ROW, torch.zeros(1, 3, 2, 8).transpose(1, 2), CACHE, "contiguous"),
        (ROW.int(), ROW.int(), CACHE.int(), CACHE.int(), "k is torch.int32"),
    ]
)


def test_refuses_a_position_of_another_kind() -> None:
    with pytest.raises(ValueError, match=r"position .*must be torch.int32 \[1\]"):
        KvWrite(ROW, ROW, CACHE, CACHE, torch.zeros(1, dtype=torch.int64)).launch()


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_written() -> None:
    capacity, head_dim = 2**23 + 5, 256
    caches = torch.zeros(1, 1, capacity, head_dim, dtype=torch.bfloat16, device="cuda")
    k = torch.ones(1, 1, head_dim, dtype=torch.bfloat16, device="cuda")
    KvWrite(k, k, caches, caches, at(capacity - 1, "cuda")).launch()
    assert caches[0, 0, -1].eq(1).all()
    assert caches.count_nonzero().item() == head_dim
