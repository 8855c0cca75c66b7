"""Narrow weights as matrices of the model's dtype: PyTorch's numbers, bit for bit where the
interpreter rounds."""

import pytest
import torch

from decodescope.kernels.host.weights import NARROW_DTYPES, WeightMatrix, quantized_rows
from decodescope.kernels.ops.dequantize_rows import BLOCK, DequantizeRows, dequantize_rows_reference
from tests.helpers.kernel_inputs import LIMITS, random, relative_error
from tests.helpers.refusals import refuses

FORMATS = pytest.mark.parametrize("stored", list(NARROW_DTYPES.values()), ids=list(NARROW_DTYPES))


def dequantized(weight: WeightMatrix, dtype: torch.dtype) -> torch.Tensor:
    """W in memory that was NaN before."""
    shape, device = weight.data.shape, weight.data.device
    out = torch.full(shape, float("nan"), dtype=dtype, device=device)
    DequantizeRows(weight, out).launch()
    return out


def every_code(stored: torch.dtype, device: str) -> torch.Tensor:
    """One row of all 256 elements."""
    return torch.arange(256, dtype=torch.uint8, device=device).view(stored)[None]


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize("shape", [(1, 1), (3, BLOCK), (2, BLOCK + 1), (5, 333), (70, 16)])
@FORMATS
def test_rows_are_those_of_pytorch(shape, dtype, stored, device: str) -> None:
    (format,) = (name for name, one in NARROW_DTYPES.items() if one == stored)
    matrix = random(*shape, device=device)
    matrix *= 10.0 ** (torch.arange(len(matrix), device=device) % 5 - 3)[:, None]
    weight = WeightMatrix(*quantized_rows(matrix, format))
    out = dequantized(weight, dtype)
    expected = dequantize_rows_reference(weight)
    assert relative_error(out, expected) < LIMITS[dtype]
    if dtype != torch.bfloat16 or device == "cuda":
        assert weight.scale is not None
        assert torch.equal(out, weight.data.to(dtype).mul_(weight.scale[:, None]))


@pytest.mark.parametrize("dtype", list(LIMITS))
@FORMATS
def test_without_scales_every_code_is_exact(dtype, stored, device: str) -> None:
    codes = every_code(stored, device)
    out = dequantized(WeightMatrix(codes), dtype)
    assert torch.equal(out.isnan(), codes.float().isnan())
    assert torch.equal(out.nan_to_num(nan=0.0, posinf=7e4), codes.to(dtype).nan_to_num(0.0, 7e4))


@pytest.mark.gpu  # In the interpreter numpy warns of the overflow, and a warning is an error here.
def test_what_is_beyond_float16_is_infinite(device: str) -> None:
    codes = torch.tensor([[448.0, -448.0, 1.0]], device=device).to(torch.float8_e4m3fn)
    out = dequantized(WeightMatrix(codes, torch.tensor([1000.0], device=device)), torch.float16)
    assert out.tolist() == [[float("inf"), -float("inf"), 1000.0]]


def test_the_bytes_are_elements_scales_and_the_matrix(device: str) -> None:
    data, scale = quantized_rows(random(6, 40, device=device), "int8")
    out = torch.empty(6, 40, dtype=torch.bfloat16, device=device)
    assert DequantizeRows(WeightMatrix(data, scale), out).bytes_moved(0) == 6 * 40 * 3 + 6 * 4
    assert DequantizeRows(WeightMatrix(data), out).bytes_moved(0) == 6 * 40 * 3


test_refuses = refuses(
    (DequantizeRows(WeightMatrix(data, None, bias), out).launch, complaint)
    for data, bias, out, complaint in [
        (torch.zeros(2, 8), None, torch.zeros(2, 8), "must be of 8 or 4 bits"),
        (torch.zeros(2, 8).char(), torch.zeros(2), torch.zeros(2, 8), "with a bias"),
        (torch.zeros(2, 8).char(), None, torch.zeros(2, 9), r"\[2, 8\]"),
        (torch.zeros(2, 8).char(), None, torch.zeros(2, 8).int(), "out is torch.int32"),
        (torch.zeros(2, 8).char(), None, torch.zeros(2, 16)[:, ::2], "must be contiguous"),
    ]
)
