import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float16, as_float32, in_word_order, rounded
from decodescope.kernels.host.weights import NARROW_DTYPES

NARROW = tuple(NARROW_DTYPES.values())


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


@triton.jit
def _rounded_kernel(values_ptr, out_ptr, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out_ptr + lane, rounded(tl.load(values_ptr + lane), out_ptr.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_are_rounded_to_fp8_as_by_torch(dtype: torch.dtype, device: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = codes[codes.isfinite()].sort().values
    between = (finite[1:] + finite[:-1]) / 2
    near = [torch.nextafter(between, torch.tensor(end)) for end in (-1e9, 1e9)]
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(500, generator=generator) * 2.0 ** torch.randint(-30, 20, (500,))
    values = torch.cat((codes, between, *near, drawn, torch.tensor([1e-45, -1e-45, 3e38])))
    values = torch.nn.functional.pad(values, (0, 2048 - len(values)))
    out = torch.full((2048,), 3.0, device=device).to(dtype)
    _rounded_kernel[(1,)](values.to(device), out, COUNT=2048)
    largest = torch.finfo(dtype).max
    expected = values.clamp(-largest, largest).to(dtype).view(torch.uint8)
    missing = values.isnan()
    assert out.cpu().view(torch.uint8)[~missing].equal(expected[~missing])
    assert out.cpu().float()[missing].isnan().all()


@triton.jit
def _product_kernel(
    w_ptr, x_ptr, order_ptr, out_ptr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr
):
    row, token, lane = tl.arange(0, ROWS), tl.arange(0, TOKENS), tl.arange(0, BLOCK)
    w = in_word_order(tl.load(w_ptr + row[:, None] * BLOCK + lane[None, :]))
    x = in_word_order(tl.load(x_ptr + token[:, None] * BLOCK + lane[None, :]))
    columns = in_word_order(tl.broadcast_to(lane[None, :], (ROWS, BLOCK)))
    tl.store(order_ptr + row[:, None] * BLOCK + lane[None, :], columns)
    out = tl.dot(as_float16(w), tl.trans(x))
    tl.store(out_ptr + row[:, None] * TOKENS + token[None, :], out)


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("dtype", NARROW)
def test_words_in_order_keep_the_product(block: int, dtype: torch.dtype, device: str) -> None:
    rows, tokens = 16, 32
    generator = torch.Generator().manual_seed(block)
    w = torch.randint(-9, 10, (rows, block), generator=generator).float().to(dtype)
    x = torch.randint(-9, 10, (tokens, block), generator=generator).half()
    order = torch.full((rows, block), -1, dtype=torch.int32, device=device)
    out = torch.full((rows, tokens), float("nan"), device=device)
    _product_kernel[(1,)](w.to(device), x.to(device), order, out, rows, tokens, block)
    # Small integers: every sum is exact.
    assert out.cpu().equal(w.float() @ x.float().T)
    # What a thread of the tensor cores takes, columns 0, 1, 8 and 9 of 16, is one word of memory.
    assert order[:, [0, 1, 8, 9]].tolist() == [[0, 1, 2, 3]] * rows
    assert order.sort(dim=1).values.tolist() == [list(range(block))] * rows
