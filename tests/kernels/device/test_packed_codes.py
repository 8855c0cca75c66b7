"""Codes of 4 bits and their scales as numbers: every one is exact."""

import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.packed_codes import pair_values, scale_values
from decodescope.kernels.host.packed import packed
from decodescope.kernels.host.packing import PACKED_FORMATS, Packing

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@triton.jit
def _codes_kernel(words_ptr, out_ptr, SCALES: tl.constexpr, WORDS: tl.constexpr):
    word = tl.arange(0, WORDS)
    words = tl.load(words_ptr + word).to(tl.uint32, bitcast=True)
    for pair in tl.static_range(4):
        first, second = pair_values(words, pair, SCALES)
        # Pair p of word i of four is that of columns 8 p + 2 i and 8 p + 2 i + 1.
        columns = out_ptr + word // 4 * 32 + 2 * (word % 4)
        tl.store(columns + 8 * pair, first)
        tl.store(columns + 8 * pair + 1, second)


@triton.jit
def _scales_kernel(stored_ptr, out_ptr, SCALES: tl.constexpr, COUNT: tl.constexpr):
    number = tl.arange(0, COUNT)
    first, second = scale_values(tl.load(stored_ptr + number), SCALES)
    tl.store(out_ptr + 2 * number, first)
    tl.store(out_ptr + 2 * number + 1, second)


@pytest.mark.parametrize("name", ["int4", "int4_asym", "mxfp4", "nvfp4"])
def test_every_code_in_every_place(name: str, device: str) -> None:
    packing = Packing(PACKED_FORMATS[name], 32)
    codes = (torch.arange(64)[:, None] + torch.arange(32)).to(torch.uint8) % 16
    scales = torch.ones(64, packing.groups, 2 if name == "int4_asym" else 1)
    words = packed(codes, scales, packing)[:, :4].contiguous().to(device)
    out = torch.full((64, 32), float("nan"), device=device)
    _codes_kernel[(1,)](words, out, packing.format.scales, 256)
    values = torch.arange(16.0)
    if packing.format.e2m1:
        values = torch.tensor((*E2M1, *(-value for value in E2M1)))
    assert torch.equal(out.cpu(), values[codes.long()])


def scales_of(stored: torch.Tensor, scales: str, device: str) -> torch.Tensor:
    out = torch.full((len(stored), 2), float("nan"), device=device)
    _scales_kernel[(1,)](stored.to(device), out, scales, len(stored))
    return out.cpu()


def test_every_exponent(device: str) -> None:
    stored = torch.arange(256).to(torch.uint8)
    found = scales_of(stored, "e8m0", device)[:, 0]
    assert torch.equal(found[:255].double(), torch.exp2(torch.arange(255.0).double() - 127))
    assert found[255].isnan()


def test_every_pair_of_e4m3(device: str) -> None:
    stored = torch.arange(256).to(torch.uint8)
    both = torch.stack((stored, stored.flip(0)), dim=1).view(torch.int16).flatten()
    found = scales_of(both.view(torch.uint16), "e4m3", device)
    numbers = stored.view(torch.float8_e4m3fn).float()
    expected = torch.stack((numbers, numbers.flip(0)), dim=1)
    assert torch.equal(found.nan_to_num(-1.0), expected.nan_to_num(-1.0))


def test_float16_with_and_without_a_zero_point(device: str) -> None:
    scales = torch.tensor([0.0, 6e-8, 6.1e-5, 1.0, 65504.0, torch.inf, torch.nan, -2.5]).half()
    found = scales_of(scales, "fp16", device)
    assert torch.equal(found[:, 0].nan_to_num(-1.0), scales.float().nan_to_num(-1.0))
    assert (found[:, 1] == 8).all()
    pairs = torch.stack((scales, torch.arange(8).half()), dim=1)
    found = scales_of(pairs.view(torch.int32).flatten(), "fp16_zero", device)
    assert torch.equal(found.nan_to_num(-1.0), pairs.float().nan_to_num(-1.0))
