from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.gemm.plain_gemm import PlainGemm
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix, quantized_rows


@pytest.mark.parametrize(
    ("tokens", "rows", "columns", "tile", "token_block"),
    [
        (1, 32, 64, Tile(16, 32), 16),
        (7, 33, 77, Tile(32, 64), 16),
        (20, 40, 96, Tile(16, 32), 16),
        (64, 20, 50, Tile(32, 32), 64),
    ],
)
def test_multiplies(
    tokens: int,
    rows: int,
    columns: int,
    tile: Tile,
    token_block: int,
    inputs: Callable[..., Any],
    assert_close: Callable[..., None],
) -> None:
    make = inputs(torch.float32)
    x, x_scale = quantized_rows(make.random(tokens, columns), "fp8_e4m3")
    weight = make.narrow(rows, columns, "fp8_e4m3")
    guarded = make.poisoned(tokens + 2, rows)
    operation = PlainGemm(x, x_scale, weight, guarded[1:-1], tile, token_block)
    operation.launch()
    (expected,) = operation.reference(0)
    if guarded.is_cuda:
        # Hopper adds FP8 products with about 14 bits.
        assert (operation.out.double() - expected).norm() < 1e-3 * expected.norm()
    else:
        assert_close(operation.out, expected)
    assert guarded[[0, -1]].isnan().all()


E4M3 = torch.float8_e4m3fn
WEIGHT = WeightMatrix(torch.zeros(6, 8).to(E4M3), torch.ones(6))
GOOD = PlainGemm(
    torch.zeros(3, 8).to(E4M3), torch.ones(3), WEIGHT, torch.zeros(3, 6), Tile(16, 32), 16
)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"x": torch.zeros(3, 8)}, "x is torch.float32"),
        ({"x_scale": torch.ones(4)}, "x_scale"),
        ({"weight": WeightMatrix(torch.zeros(6, 8))}, "weights is torch.float32"),
        ({"weight": WeightMatrix(WEIGHT.data)}, "needs scales"),
        ({"out": torch.zeros(3, 7)}, "out"),
        ({"tile": Tile(16, 32, splits=2)}, "2 splits"),
    ],
)
def test_refuses(changes: dict[str, Any], complaint: str) -> None:
    GOOD.launch()
    with pytest.raises(ValueError, match=complaint):
        replace(GOOD, **changes).launch()
