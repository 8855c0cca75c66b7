from dataclasses import replace

import pytest
import torch

from decodescope.kernels.host.product import product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.linear_residual import (
    LinearResidual,
    linear_residual_reference,
    split_workspace,
)
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

SHAPES = [
    (12, 64, Tile(4, 64)),
    (13, 77, Tile(4, 128)),
    (7, 577, Tile(8, 128, num_stages=3)),
    (1, 33, Tile(1, 16, num_stages=2)),
    (5, 100, Tile(16, 32, num_stages=4)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns", "tile"), SHAPES)
def test_adds_the_product(
    rows: int, columns: int, tile: Tile, dtype: torch.dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x = make.random(1, columns)
    weight = make.weight(rows, columns, scaled=rows % 2 == 1, biased=rows > 5)
    residual, again = make.random(1, rows, seed=4), make.random(1, rows, seed=4)
    expected = linear_residual_reference(x, weight, residual)
    LinearResidual(x, weight, residual, tile, make.workspace(0, 0)).launch()
    LinearResidual(x, weight, again, tile, make.workspace(0, 0)).launch()
    assert_close(residual, expected)
    assert torch.equal(residual, again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("batch", "splits"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_what_does_not_add_overwrites(
    batch: int, splits: int, dtype: torch.dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, 100), make.weight(9, 100, scaled=True, biased=True)
    # As the logits of a sigmoid router.
    out, workspace = make.poisoned(batch, 9).float(), make.workspace(2000, 2)
    tile = Tile(16, 16, splits=splits)
    operation = LinearResidual(x, weight, out, tile, workspace, adds=False)
    operation.launch()
    assert_close(out, operation.reference(0)[0])
    assert (operation.outputs(0), operation.updated) == ((out,), ())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [2, 3, 5])
@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (9, 100, Tile(4, 16, num_stages=3)),
        # The last two of five splits have no column.
        (5, 33, Tile(4, 16)),
        (6, 128, Tile(8, 32)),
    ],
)
def test_splits_add_up(
    rows: int,
    columns: int,
    tile: Tile,
    splits: int,
    dtype: torch.dtype,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    make = inputs(dtype)
    tile = replace(tile, splits=splits)
    blocks = -(-rows // tile.rows)
    needed = splits * blocks * tile.rows
    workspace = make.workspace(needed + 8, blocks)
    x, weight = make.random(1, columns), make.weight(rows, columns, scaled=True, biased=True)
    results = []
    for _ in range(2):
        residual = make.random(1, rows, seed=4)
        expected = linear_residual_reference(x, weight, residual)
        LinearResidual(x, weight, residual, tile, workspace).launch()
        assert_close(residual, expected)
        assert_reset(workspace)
        results.append(residual)
    assert torch.equal(*results)
    assert workspace.partials[needed:].isnan().all()


@pytest.mark.parametrize("batch", [1, 3])
def test_the_partial_sums_of_a_rank_are_float32(batch: int, inputs, assert_close) -> None:
    make = inputs(torch.bfloat16)
    x, weight = make.random(batch, 100), make.weight(37, 100)
    partial = make.random(batch, 37, seed=4, dtype=torch.float32)
    expected = linear_residual_reference(x, weight, partial)
    LinearResidual(x, weight, partial, Tile(16, 32), make.workspace(0, 0)).launch()
    assert_close(partial, expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_limit_of_registers_changes_no_bit(batch: int, inputs) -> None:
    make = inputs(torch.bfloat16)
    x, weight, tile = make.random(batch, 1100), make.weight(37, 1100), Tile(16, 512, 1, 2)
    residual, again = (make.random(batch, 37, seed=4) for _ in range(2))
    LinearResidual(x, weight, residual, tile, make.workspace(0, 0)).launch()
    limited = replace(tile, max_registers=64)
    assert product_options(x, weight, limited, False)["maxnreg"] == 64
    assert "maxnreg" not in product_options(x, weight, tile, False)
    LinearResidual(x, weight, again, limited, make.workspace(0, 0)).launch()
    assert torch.equal(residual, again)


@pytest.mark.parametrize("splits", [1, 3])
def test_writes_no_further_than_its_rows(splits: int, inputs) -> None:
    make = inputs(torch.float32)
    storage = make.poisoned(1, 13)
    storage[:, 4:9] = 0.5
    weight = make.weight(5, 48)
    tile, workspace = Tile(4, 16, splits=splits), make.workspace(24, 2)
    LinearResidual(make.random(1, 48), weight, storage[:, 4:9], tile, workspace).launch()
    assert storage.isfinite().tolist()[0] == [4 <= column < 9 for column in range(13)]


@pytest.mark.parametrize("splits", [1, 2])
def test_agrees_with_torch_in_fp32(splits: int, inputs) -> None:
    make = inputs(torch.float32)
    module = torch.nn.Linear(64, 10).to(make.device).requires_grad_(False)
    x, residual = make.random(1, 64), make.random(1, 10, seed=4)
    expected = residual + module(x)
    weight = WeightMatrix(module.weight, bias=module.bias)
    torch.testing.assert_close(linear_residual_reference(x, weight, residual).float(), expected)
    LinearResidual(x, weight, residual, Tile(4, 32, splits=splits), make.workspace(24, 3)).launch()
    torch.testing.assert_close(residual, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("splits", [1, 2])
def test_the_sum_is_rounded_once(splits: int, inputs) -> None:
    make = inputs(torch.float16)
    weight = WeightMatrix(torch.ones(2, 32, dtype=torch.float16, device=make.device))
    # The product, 2049, is no float16; added to -2048 before it is rounded, it leaves 1.
    x = torch.full((1, 32), 64.0, dtype=torch.float16, device=make.device)
    x[0, 0] = 65.0
    residual = torch.full((1, 2), -2048.0, dtype=torch.float16, device=make.device)
    LinearResidual(x, weight, residual, Tile(2, 16, splits=splits), make.workspace(4, 1)).launch()
    assert residual.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "tile"),
    [
        (2, 40, 96, Tile(16, 32)),
        (3, 33, 77, Tile(32, 64, splits=1)),
        (7, 50, 131, Tile(16, 32, splits=3)),
        (8, 64, 256, Tile(64, 64, splits=4)),
        (16, 35, 100, Tile(32, 16, splits=5)),
        (5, 17, 40, Tile(16, 32, splits=4)),
        (17, 33, 70, Tile(32, 32, splits=2)),
        (64, 18, 100, Tile(16, 32, splits=3)),
    ],
)
def test_adds_the_product_of_a_batch(
    batch: int,
    rows: int,
    columns: int,
    tile: Tile,
    dtype: torch.dtype,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    make = inputs(dtype)
    x, residual = make.random(batch, columns), make.random(batch, rows)
    weight = make.weight(rows, columns, scaled=rows % 2 == 1, biased=batch % 2 == 1)
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    expected = linear_residual_reference(x, weight, residual)
    again = residual.clone()
    LinearResidual(x, weight, residual, tile, workspace).launch()
    assert_close(residual, expected)
    LinearResidual(x, weight, again, tile, workspace).launch()
    assert torch.equal(residual, again)
    assert_reset(workspace)


def test_a_batch_writes_no_further_than_its_rows(inputs) -> None:
    make = inputs(torch.float32)
    guarded = make.poisoned(5, 19)
    guarded[1:4] = 0
    x, weight = make.random(3, 24), make.weight(19, 24)
    LinearResidual(
        x, weight, guarded[1:4], Tile(16, 16, splits=2), make.workspace(1024, 2)
    ).launch()
    assert guarded[[0, 4]].isnan().all()
    assert not guarded[1:4].isnan().any()


WEIGHT = WeightMatrix(torch.zeros(6, 8))
X, RESIDUAL = torch.zeros(1, 8), torch.zeros(1, 6)
X3, RESIDUAL3 = torch.zeros(3, 8), torch.zeros(3, 6)
TILE, SPLIT_TILE, BATCH_TILE = Tile(4, 8), Tile(4, 8, splits=2), Tile(16, 16, splits=2)
WORKSPACE = new_workspace(16, 2, "cpu")


test_refuses = refuses(
    (LinearResidual(x, WEIGHT, residual, tile, workspace).launch, complaint)
    for x, residual, tile, workspace, complaint in [
        (torch.zeros(8), RESIDUAL, TILE, WORKSPACE, r"x \[8\]: must be \[1 to 64, 8\]"),
        (torch.zeros(65, 8), torch.zeros(65, 6), TILE, WORKSPACE, r"x \[65, 8\]: .*1 to 64"),
        (torch.zeros(0, 8), torch.zeros(0, 6), TILE, WORKSPACE, "1 to 64"),
        (torch.zeros(1, 9), RESIDUAL, TILE, WORKSPACE, r"x .*\[1, 9\].*\[1, 8\]"),
        (torch.zeros(8, 2).T[:1], RESIDUAL, TILE, WORKSPACE, "x has strides"),
        (X.double(), RESIDUAL.double(), TILE, WORKSPACE, "x is torch.float64"),
        (X.to("meta"), RESIDUAL, TILE, WORKSPACE, "x .* on meta: must be .* on cpu"),
        (X, torch.zeros(2, 6), TILE, WORKSPACE, r"residual .*\[2, 6\].*\[1, 6\]"),
        (X, RESIDUAL.half(), TILE, WORKSPACE, "residual is torch.float16"),
        (X, torch.zeros(6, 2).T[:1], TILE, WORKSPACE, "residual has strides"),
        (X, RESIDUAL.to("meta"), TILE, WORKSPACE, "residual .* on meta"),
        (X, X[:, 2:], TILE, WORKSPACE, "residual shares memory with x"),
        (X, X[:, :6], SPLIT_TILE, WORKSPACE, "residual shares memory with x"),
        (X, RESIDUAL, SPLIT_TILE, new_workspace(15, 2, "cpu"), "needs 16 and 2"),
        (X, RESIDUAL, SPLIT_TILE, new_workspace(16, 1, "cpu"), "needs 16 and 2"),
        (X, RESIDUAL, SPLIT_TILE, new_workspace(16, 2, "meta"), "workspace on meta"),
        (X3, RESIDUAL3, Tile(8, 16), WORKSPACE, "tile of 8 x 16"),
        (X3, RESIDUAL3, Tile(16, 8), WORKSPACE, "tile of 16 x 8"),
        (X3, RESIDUAL3, BATCH_TILE, new_workspace(2 * 16 * 16 - 1, 1, "cpu"), "needs 512 and 1"),
        (X3, RESIDUAL3, BATCH_TILE, new_workspace(2 * 16 * 16, 0, "cpu"), "needs 512 and 1"),
    ]
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("tile", [Tile(2, 2048, 4, 2), Tile(8, 512, 8, 3), Tile(1, 4096, 8)])
def test_large_products_repeat_bit_for_bit(
    tile: Tile, splits: int, dtype: torch.dtype, inputs, assert_close, assert_reset
) -> None:
    make = inputs(dtype)
    rows, columns, tile = 1001, 14_336, replace(tile, splits=splits)
    blocks = -(-rows // tile.rows)
    workspace = make.workspace(splits * blocks * tile.rows, blocks)
    x, weight = make.random(1, columns), make.weight(rows, columns)
    first = None
    for _ in range(20):
        residual = make.random(1, rows, seed=4)
        expected = linear_residual_reference(x, weight, residual)
        LinearResidual(x, weight, residual, tile, workspace).launch()
        assert_close(residual, expected)
        assert first is None or torch.equal(residual, first)
        first = residual
    assert_reset(workspace)
