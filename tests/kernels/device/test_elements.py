import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float16, as_float32

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)


@triton.jit
def _converted_kernel(codes_ptr, wide_ptr, half_ptr, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tile = tl.load(codes_ptr + lane)
    tl.store(wide_ptr + lane, as_float32(tile))
    tl.store(half_ptr + lane, as_float16(tile))


@pytest.mark.parametrize("dtype", NARROW)
def test_all_256_codes_convert_exactly(dtype: torch.dtype, device: str) -> None:
    codes = torch.randperm(256, dtype=torch.int64).to(torch.uint8)
    wide = torch.full((256,), -7.0, device=device)
    half = torch.full((256,), -7.0, dtype=torch.float16, device=device)
    _converted_kernel[(1,)](codes.view(dtype).to(device), wide, half, COUNT=256)
    expected = codes.view(dtype).float()
    for converted in (wide.cpu(), half.cpu().float()):
        torch.testing.assert_close(converted, expected, rtol=0, atol=0, equal_nan=True)
        # Both zeros keep their sign.
        zeros = expected == 0
        assert converted[zeros].signbit().equal(expected[zeros].signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_wider_elements_are_kept(dtype: torch.dtype, device: str) -> None:
    values = torch.randn(256).to(dtype)
    wide = torch.full((256,), float("nan"), device=device)
    half = torch.full((256,), float("nan"), dtype=torch.float16, device=device)
    _converted_kernel[(1,)](values.to(device), wide, half, COUNT=256)
    assert wide.cpu().equal(values.float())
    torch.testing.assert_close(half.cpu(), values.half(), rtol=2.0**-10, atol=2.0**-24)
