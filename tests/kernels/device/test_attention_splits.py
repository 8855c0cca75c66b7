import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from decodescope.kernels.device.attention_splits import (
    MAX_COMBINING_PROGRAMS,
    Combination,
    attention_workspace,
    combination,
    default_splits,
    rows_of_split,
)


@triton.jit
def _rows_of_splits(ranges_ptr, first, end, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    split = tl.program_id(0)
    low, high = rows_of_split(first, end, split, SPLITS, BLOCK)
    tl.store(ranges_ptr + 2 * split, low)
    tl.store(ranges_ptr + 2 * split + 1, high)


@pytest.mark.parametrize(("first", "end"), [(0, 0), (0, 1), (5, 37), (0, 64), (3, 300), (7, 199)])
@pytest.mark.parametrize("splits", [1, 2, 5, 8])
def test_splits_share_all_rows_evenly(first: int, end: int, splits: int, device: str) -> None:
    ranges = torch.full((splits, 2), -1, dtype=torch.int32, device=device)
    _rows_of_splits[(splits,)](ranges, first, end, SPLITS=splits, BLOCK=16)
    shares = [range(low, high) for low, high in ranges.tolist()]
    assert [row for share in shares for row in share] == list(range(first, end))
    assert all((share.start - first) % 16 == 0 for share in shares if share)
    blocks = [-(-len(share) // 16) for share in shares]
    assert max(blocks) - min(blocks) <= 1
    assert blocks == sorted(blocks, reverse=True)


@pytest.mark.parametrize(
    ("capacity", "batch", "kv_heads", "splits"),
    [
        (255, 1, 8, 1),
        (256, 1, 8, 2),
        (2048, 1, 8, 16),
        (4095, 1, 8, 16),
        (8192, 1, 8, 32),
        (8192, 1, 32, 8),
        (8192, 3, 8, 8),
        (8192, 16, 8, 2),
        (8192, 16, 32, 1),
        (131072, 1, 1, 64),
    ],
)
def test_default_splits_on_an_h200(capacity: int, batch: int, kv_heads: int, splits: int) -> None:
    assert default_splits(capacity, batch, kv_heads, resident_programs=264) == splits


@given(
    capacity=st.integers(1, 200_000),
    batch=st.integers(1, 64),
    kv_heads=st.integers(1, 64),
    resident=st.integers(1, 800),
)
def test_default_splits_are_resident_and_long_enough(
    capacity: int, batch: int, kv_heads: int, resident: int
) -> None:
    def allowed(splits: int) -> bool:
        programs = batch * kv_heads * splits
        return splits <= 64 and programs <= resident and capacity >= 128 * splits

    splits = default_splits(capacity, batch, kv_heads, resident)
    assert splits & (splits - 1) == 0
    assert splits == 1 or allowed(splits)
    assert not allowed(2 * splits)


def test_workspace_holds_each_split_of_each_head() -> None:
    assert attention_workspace(2, 6, 80, 5) == (2 * 6 * 5 * 82, 24)
    assert attention_workspace(2, 6, 80, 1) == (0, 0)


@pytest.mark.parametrize(
    ("batch", "kv_heads", "group", "padded_dim", "splits", "num_warps", "expected"),
    [
        # Llama-3.1-8B: half a query head each.
        (1, 8, 4, 128, 32, 4, Combination(1, 64, 8, 64)),
        (2, 8, 4, 128, 16, 4, Combination(1, 128, 4, 64)),
        (4, 8, 4, 128, 8, 4, Combination(2, 128, 2, 64)),
        (8, 8, 4, 128, 4, 4, Combination(4, 128, 1, 64)),
        (16, 8, 4, 128, 2, 4, Combination(4, 128, 1, 64)),
        # Registers hold one query head of so many splits.
        (16, 8, 4, 256, 64, 4, Combination(1, 256, 4, 64)),
        (1, 2, 7, 64, 8, 4, Combination(1, 32, 14, 28)),
        (1, 8, 4, 128, 1, 4, Combination(1, 128, 1, 0)),
    ],
)
def test_what_is_combined_at_once(
    batch: int,
    kv_heads: int,
    group: int,
    padded_dim: int,
    splits: int,
    num_warps: int,
    expected: Combination,
) -> None:
    parts = combination(batch, kv_heads, group, padded_dim, splits, num_warps, multiprocessors=132)
    assert parts == expected


@given(
    batch=st.integers(1, 64),
    kv_heads=st.integers(1, 64),
    group=st.integers(1, 32),
    padded_dim=st.sampled_from([32, 64, 128, 256]),
    splits=st.integers(2, 64),
    num_warps=st.sampled_from([1, 2, 4, 8]),
    multiprocessors=st.integers(2, 200),
)
def test_pieces_cover_a_kv_head_and_have_a_counter_each(
    batch: int,
    kv_heads: int,
    group: int,
    padded_dim: int,
    splits: int,
    num_warps: int,
    multiprocessors: int,
) -> None:
    parts = combination(batch, kv_heads, group, padded_dim, splits, num_warps, multiprocessors)
    columns = padded_dim // parts.width
    assert parts.width * columns == padded_dim
    rounds = parts.pieces // columns
    assert (rounds - 1) * parts.heads < group <= rounds * parts.heads
    _, counters = attention_workspace(batch, kv_heads * group, 128, splits)
    assert batch * kv_heads * parts.pieces <= counters
    assert 1 <= parts.programs <= MAX_COMBINING_PROGRAMS
    assert parts.programs < multiprocessors
    assert parts.programs <= batch * kv_heads * parts.pieces
