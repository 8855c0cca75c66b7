"""Which rows a program has, and where they are."""

import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.weight_rows import program_pairs


@triton.jit
def _offsets_kernel(out_ptr, first, HALF: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr):
    base_ptr, inside, rows = program_pairs(out_ptr, first, HALF, K, ROWS)
    # Nothing is read there: a difference of pointers is the offset.
    offsets = base_ptr.to(tl.int64) - out_ptr.to(tl.int64) + 8 * (inside * K).to(tl.int64)
    tl.store(out_ptr + tl.arange(0, ROWS), offsets // 8)
    tl.store(out_ptr + ROWS + tl.arange(0, ROWS), rows.to(tl.int64))


# The second half begins below 2^31 elements, and the last rows of a program lie beyond.
@pytest.mark.parametrize(("half", "columns"), [(131_071, 16_384), (131_072, 16_384), (99, 33)])
def test_pairs_beyond_32_bits_have_their_place(half: int, columns: int, device: str) -> None:
    rows = 128
    for first in (0, max(0, half - rows // 2)):
        out = torch.zeros(2, rows, dtype=torch.int64, device=device)
        _offsets_kernel[(1,)](out, first, HALF=half, K=columns, ROWS=rows)
        pair = torch.arange(rows) // 2 + first
        second = torch.arange(rows) % 2
        expected = pair.clamp(max=half - 1) + second * half
        assert out[0].cpu().tolist() == (expected * columns).tolist()
        assert out[1].cpu().tolist() == (pair + second * half).tolist()
