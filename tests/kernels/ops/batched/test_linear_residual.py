import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.batched.linear_residual import linear_residual
from decodescope.kernels.ops.linear_residual import linear_residual_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "tile"),
    [
        (1, 16, 16, Tile(16, 16)),
        (2, 40, 96, Tile(16, 32)),
        (3, 33, 77, Tile(32, 64, splits=1)),
        (7, 50, 131, Tile(16, 32, splits=3)),
        (8, 64, 256, Tile(64, 64, splits=4)),
        (16, 35, 100, Tile(32, 16, splits=5)),
        (5, 17, 40, Tile(16, 32, splits=4)),
    ],
)
def test_adds_the_product(
    batch: int, rows: int, columns: int, tile: Tile, dtype: torch.dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x, residual = make.random(batch, columns), make.random(batch, rows)
    weight = make.weight(rows, columns, scaled=rows % 2 == 1, biased=batch % 2 == 1)
    blocks = -(-rows // tile.rows)
    workspace = make.workspace(tile.splits * blocks * tile.rows * batch, blocks)
    expected = linear_residual_reference(x, weight, residual)
    again = residual.clone()
    linear_residual(x, weight, residual, tile, workspace)
    assert_close(residual, expected)
    linear_residual(x, weight, again, tile, workspace)
    assert torch.equal(residual, again)
    assert not workspace.counters.any()


def test_rows_beside_the_tile_stay_as_they_are(inputs) -> None:
    make = inputs(torch.float32)
    guarded = make.poisoned(5, 19)
    guarded[1:4] = 0
    x, weight = make.random(3, 24), make.weight(19, 24)
    linear_residual(x, weight, guarded[1:4], Tile(16, 16, splits=2), make.workspace(192, 2))
    assert guarded[[0, 4]].isnan().all()
    assert not guarded[1:4].isnan().any()


@pytest.mark.parametrize(
    ("tile", "partials", "counters", "complaint"),
    [
        (Tile(8, 16), 0, 0, "tile of 8 x 16"),
        (Tile(16, 8), 0, 0, "tile of 16 x 8"),
        (Tile(16, 16, splits=2), 2 * 32 * 3 - 1, 2, "needs 192 and 2"),
        (Tile(16, 16, splits=2), 2 * 32 * 3, 1, "needs 192 and 2"),
    ],
)
def test_refuses_what_it_cannot_run(
    tile: Tile, partials: int, counters: int, complaint: str, inputs
) -> None:
    make = inputs(torch.float32)
    x, weight, residual = make.random(3, 24), make.weight(20, 24), make.random(3, 20)
    with pytest.raises(ValueError, match=complaint):
        linear_residual(x, weight, residual, tile, make.workspace(partials, counters))
