from functools import partial

import pytest
import torch

from decodescope.kernels.host.weights import Format, WeightMatrix
from tests.helpers.refusals import refuses

DATA = torch.arange(6.0).view(2, 3)


@pytest.mark.parametrize(
    ("dtype", "format_", "size"),
    [
        (torch.bfloat16, "bf16", 2),
        (torch.float16, "fp16", 2),
        (torch.float32, "fp32", 4),
        (torch.float8_e4m3fn, "fp8_e4m3", 1),
        (torch.float8_e5m2, "fp8_e5m2", 1),
        (torch.int8, "int8", 1),
    ],
)
def test_describes_its_elements(dtype: torch.dtype, format_: Format, size: int) -> None:
    weight = WeightMatrix(DATA.to(dtype))
    assert (weight.rows, weight.columns, weight.format) == (2, 3, format_)
    assert weight.bytes_read == 6 * size
    scaled = WeightMatrix(DATA.to(dtype), torch.ones(2), torch.ones(2, dtype=torch.bfloat16))
    assert scaled.bytes_read == 6 * size + 2 * 4 + 2 * 2


def test_a_scale_multiplies_its_row() -> None:
    weight = WeightMatrix(DATA.half(), torch.tensor([2.0, -0.5]))
    assert weight.dense().tolist() == [[0.0, 2.0, 4.0], [-1.5, -2.0, -2.5]]
    assert weight.dense().dtype == torch.float64
    assert WeightMatrix(DATA).dense(torch.float32).equal(DATA)


test_refuses = refuses(
    (partial(WeightMatrix, data, scale, bias), complaint)
    for data, scale, bias, complaint in [
        (torch.zeros(6), None, None, r"weights \[6\].*contiguous matrix"),
        (torch.zeros(3, 2).T, None, None, "contiguous matrix"),
        (torch.zeros(0, 3), None, None, r"weights \[0, 3\].*not empty"),
        (torch.zeros(3, 0), None, None, "not empty"),
        (DATA.double(), None, None, "weights of torch.float64"),
        (DATA, torch.ones(2).half(), None, "scales of torch.float16"),
        (DATA, torch.ones(3), None, r"scale \[3\].*\[2\]"),
        (DATA, torch.ones(4)[::2], None, r"scale .*strides \(2,\)"),
        (DATA, torch.ones(2, device="meta"), None, "scale .* on meta: must be .* on cpu"),
        (DATA, None, torch.ones(2).int(), "bias of torch.int32"),
        (DATA, None, torch.ones(1), r"bias \[1\].*\[2\]"),
        (DATA, None, torch.ones(2, 1), r"bias \[2, 1\].*\[2\]"),
        (DATA, None, torch.ones(4)[::2], r"bias .*strides \(2,\)"),
        (DATA, None, torch.ones(2, device="meta"), "bias .* on meta"),
    ]
)
