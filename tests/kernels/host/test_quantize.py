import math
from functools import partial
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decodescope.kernels.host.weights import (
    NARROW_DTYPES,
    ByteFormat,
    WeightMatrix,
    largest_value,
    quantized_rows,
)
from tests.helpers.refusals import refuses

FORMATS: tuple[ByteFormat, ...] = get_args(ByteFormat)
# Half the distance of neighbouring elements: E4M3 2^-4, E5M2 2^-3 of the value; INT8 half a step,
# which is 1/127 of the largest value of the row.
RELATIVE = {"fp8_e4m3": 2.0**-4, "fp8_e5m2": 2.0**-3, "int8": 0.0}
ABSOLUTE = {"fp8_e4m3": 2.0**-10 / 448, "fp8_e5m2": 2.0**-17 / 57344, "int8": 0.5 / 127}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_weight_is_within_half_an_element_of_its_value(
    format: ByteFormat, dtype: torch.dtype
) -> None:
    matrix = torch.randn(37, 129).to(dtype)
    matrix[3] *= 1e-3
    matrix[4, 7] = 1e3
    kept = matrix.clone()
    data, scale = quantized_rows(matrix, format)
    assert matrix.equal(kept)
    assert data.dtype == NARROW_DTYPES[format]
    assert scale is not None
    assert scale.dtype == torch.float32
    dense = WeightMatrix(data, scale).dense()
    largest = matrix.double().abs().amax(1, keepdim=True)
    allowed = RELATIVE[format] * matrix.double().abs() + ABSOLUTE[format] * largest
    # The float32 quotient and scale are off by 127 * 2^-23 of an element at most, each.
    assert bool(((dense - matrix.double()).abs() <= allowed * (1 + 1e-4)).all())
    # The largest value of a row is kept but for the rounding of its scale.
    torch.testing.assert_close(dense.abs().amax(1, keepdim=True), largest, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_of_zeros_stays_zeros(format: ByteFormat) -> None:
    matrix = torch.randn(3, 8)
    matrix[1] = 0.0
    data, scale = quantized_rows(matrix, format)
    assert scale is not None
    assert scale[1] == 1.0
    assert WeightMatrix(data, scale).dense()[1].count_nonzero() == 0


@given(
    st.sampled_from(FORMATS),
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
)
def test_any_finite_row_gives_finite_elements_and_a_positive_scale(
    format: ByteFormat, row: list[float]
) -> None:
    data, scale = quantized_rows(torch.tensor([row]), format)
    assert scale is not None
    assert 0.0 < float(scale) < math.inf
    assert bool(data.float().isfinite().all())
    assert float(data.float().abs().max()) <= largest_value(data.dtype)


def test_without_scales_elements_are_rounded_as_they_are() -> None:
    matrix = torch.tensor([[0.3, -70000.0, 1e-9, 2.0**-16]])
    data, scale = quantized_rows(matrix, "fp8_e5m2", scaled=False)
    assert scale is None
    assert data.float().tolist() == [[0.3125, -57344.0, 0.0, 2.0**-16]]


test_refuses = refuses(
    (partial(quantized_rows, matrix, format, scaled), complaint)
    for matrix, format, scaled, complaint in [
        (torch.ones(3), "int8", True, r"\[3\]: must be a matrix"),
        (torch.ones(2, 2).int(), "int8", True, "floating-point"),
        (torch.ones(2, 2), "int8", False, "int8 without scales"),
        (torch.tensor([[1.0], [math.nan]]), "fp8_e4m3", True, "row 1 .* NaN or an infinity"),
        (torch.tensor([[-math.inf], [1.0]]), "fp8_e5m2", False, "row 0 .* NaN or an infinity"),
    ]
)
