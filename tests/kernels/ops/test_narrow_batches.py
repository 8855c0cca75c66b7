"""FP8 and INT8 weights with several tokens: float16 operands, float32 sums, one scale a row."""

from dataclasses import replace

import pytest
import torch

from decodescope.kernels.host.product import product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import FORMATS as ELEMENTS
from decodescope.kernels.host.weights import NARROW_DTYPES, WeightMatrix, quantized_rows
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import (
    LinearResidual,
    linear_residual_reference,
    split_workspace,
)
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference
from decodescope.kernels.ops.norm_head import NormHead

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMATS = list(NARROW_DTYPES)
LARGEST = 65504.0
# Words of four elements need 64 rows and columns in sixteens; the others load bytes.
SHAPES = [
    (2, 70, 96, Tile(64, 32)),
    (5, 33, 77, Tile(16, 64)),
    (16, 64, 128, Tile(64, 64)),
    (17, 20, 40, Tile(32, 32)),
    (33, 65, 112, Tile(64, 64)),
    (64, 18, 131, Tile(16, 64)),
]


def assert_within_rounding(out: torch.Tensor, x: torch.Tensor, weight: WeightMatrix) -> None:
    """Each output is as near to the float64 product as the roundings allow: one of the output, and
    one of each addition; x is exact in float16."""
    expected = linear_reference(x, weight)
    sizes = x.double().abs() @ weight.dense().abs().T
    # The interpreter truncates to bfloat16: up to a whole unit.
    bits = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8 if out.is_cuda else 7}[
        out.dtype
    ]
    bound = 2.0**-bits * expected.abs() + weight.columns * 2.0**-23 * sizes
    # The products of two values that are near to zero in float16.
    bound += weight.columns * 2.0**-24 * weight.dense().abs().amax()
    assert ((out.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "rows", "columns", "tile"), SHAPES)
def test_product(
    batch: int, rows: int, columns: int, tile: Tile, dtype, format: str, inputs
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, columns) * 3, make.narrow(rows, columns, format)
    out, again = make.poisoned(batch, rows), make.poisoned(batch, rows)
    Linear(x, weight, out, tile).launch()
    Linear(x, weight, again, tile).launch()
    assert_within_rounding(out, x, weight)
    assert torch.equal(out, again)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [64, 61])
def test_every_finite_code_arrives_exactly_and_at_its_place(
    columns: int, format: str, inputs
) -> None:
    make = inputs(torch.bfloat16)
    codes = torch.arange(256, dtype=torch.uint8).view(NARROW_DTYPES[format])
    codes = codes[codes.float().isfinite()]
    places = (torch.arange(70)[:, None] * columns + torch.arange(columns)) % len(codes)
    data = codes.view(torch.uint8)[places].view(codes.dtype).to(make.device)
    unit = torch.eye(columns, dtype=torch.bfloat16, device=make.device)
    out = make.poisoned(columns, 70)
    Linear(unit, WeightMatrix(data), out, Tile(64, 64)).launch()
    assert torch.equal(out.T.float(), data.float())


def test_only_elements_with_a_conversion_of_words_are_loaded_in_words(
    inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = inputs(torch.bfloat16)
    new = torch.float8_e4m3fnuz
    monkeypatch.setitem(ELEMENTS, new, "fp8_e4m3")
    x, full = make.random(3, 64), make.random(64, 64, dtype=torch.float32).cpu()
    for dtype in (*NARROW_DTYPES.values(), new):
        weight = WeightMatrix(full.to(dtype))
        options = product_options(x.cpu(), weight, Tile(64, 64), pdl=False)
        assert options["WORDS"] == (dtype != new)


@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("columns", [64, 61])
def test_a_nan_in_the_weights_shows_in_its_row_only(columns: int, format: str, inputs) -> None:
    make = inputs(torch.float16)
    weight = make.narrow(70, columns, format)
    weight.data.view(torch.uint8)[66, 7] = 0x7F
    x, out = make.random(3, columns), make.poisoned(3, 70)
    Linear(x, weight, out, Tile(64, 64)).launch()
    assert out[:, 66].isnan().all()
    assert not out[:, :66].isnan().any()
    assert not out[:, 67:].isnan().any()


@pytest.mark.parametrize("columns", [48, 43])
def test_activations_beyond_float16_become_its_largest_value(columns: int, inputs) -> None:
    make = inputs(torch.bfloat16)
    x, weight = make.random(4, columns), make.narrow(64, columns, "fp8_e4m3")
    x[0, ::5] *= 1e20
    x[1, 3] = -1e5
    x[2, 1] = float("nan")
    out = make.poisoned(4, 64)
    Linear(x, weight, out, Tile(64, 64)).launch()
    assert out[2].isnan().all()
    kept = [0, 1, 3]
    assert_within_rounding(out[kept], x[kept].double().clamp(-LARGEST, LARGEST), weight)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("biased", [False, True])
def test_outlier_channels_and_rows_of_zeros(biased: bool, format: str, inputs) -> None:
    make = inputs(torch.bfloat16)
    full = make.random(66, 80, dtype=torch.float32)
    full[3] *= 1e6
    full[:, 9] *= 300
    full[40] = 0
    full[65] *= 1e-9
    bias = make.random(66, seed=2) if biased else None
    weight = WeightMatrix(*quantized_rows(full, format), bias)
    x, out = make.random(17, 80), make.poisoned(17, 66)
    Linear(x, weight, out, Tile(64, 64)).launch()
    assert_within_rounding(out, x, weight)
    expected = torch.zeros_like(out[:, 40]) if bias is None else bias[40].expand(17)
    assert torch.equal(out[:, 40], expected)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "tile"),
    [
        (2, 66, 160, Tile(64, 32, splits=3)),
        (33, 40, 77, Tile(16, 16, splits=5)),
        (64, 64, 96, Tile(64, 32, splits=2)),
    ],
)
def test_split_products_add_up_in_a_fixed_order(
    batch: int,
    rows: int,
    columns: int,
    tile: Tile,
    dtype,
    format: str,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, columns), make.narrow(rows, columns, format, biased=True)
    residual = make.random(batch, rows, seed=4)
    again, expected = residual.clone(), linear_residual_reference(x, weight, residual)
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    LinearResidual(x, weight, residual, tile, workspace).launch()
    assert_close(residual, expected)
    LinearResidual(x, weight, again, tile, workspace).launch()
    assert torch.equal(residual, again)
    assert_reset(workspace)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "tile"), [(5, Tile(64, 64)), (33, Tile(32, 32))])
def test_gated_product_and_head(
    batch: int, tile: Tile, dtype, format: str, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, 80), make.narrow(68, 80, format)
    out = make.poisoned(batch, 34)
    NormGateUp(x, None, weight, out, tile).launch()
    assert_close(out, norm_gate_up_reference(x, None, weight))
    tokens = torch.zeros(batch, 4, dtype=torch.int64, device=make.device)
    logits = make.poisoned(batch, 68, dtype=torch.float32)
    head = NormHead(x, None, weight, tokens, make.position(1), tile, make.workspace(0, 1), logits)
    head.launch()
    assert_close(logits.to(dtype), linear_reference(x, weight))
    assert torch.equal(tokens[:, 2], logits.argmax(dim=1))


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "tile",
    [
        Tile(16, 256, 4, 4),
        Tile(32, 256, 4, 4),
        Tile(64, 128, 4, 4),
        Tile(64, 256, 4, 3),
        Tile(128, 128, 4, 3),
        Tile(128, 128, 8, 4),
        Tile(128, 256, 8, 3),
    ],
)
@pytest.mark.parametrize(
    ("batch", "columns"), [(2, 4096), (16, 4096), (17, 4112), (33, 4099), (64, 4096)]
)
def test_pipelined_tiles(
    batch: int, columns: int, tile: Tile, dtype, format: str, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, columns), make.narrow(1000, columns, format)
    out, gated = make.poisoned(batch, 1000), make.poisoned(batch, 500)
    Linear(x, weight, out, tile).launch()
    assert_within_rounding(out, x, weight)
    NormGateUp(x, None, weight, gated, tile).launch()
    assert_close(gated, norm_gate_up_reference(x, None, weight))
    split = replace(tile, splits=5)
    workspace = make.workspace(*split_workspace(weight, split, batch))
    results = []
    for _ in range(5):
        residual = make.random(batch, 1000, seed=4)
        expected = linear_residual_reference(x, weight, residual)
        LinearResidual(x, weight, residual, split, workspace).launch()
        results.append(residual)
    assert_close(results[0], expected)
    assert all(torch.equal(results[0], result) for result in results)
