"""FP8 and INT8 weights with one token: on the tensor cores from 16 rows on, on CUDA cores below."""

import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import NARROW_DTYPES, WeightMatrix
from decodescope.kernels.ops.decode_attention import DecodeAttention, decode_attention_reference
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import (
    LinearResidual,
    linear_residual_reference,
    split_workspace,
)
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference
from decodescope.kernels.ops.norm_head import NormHead

FORMATS = list(NARROW_DTYPES)
LARGEST = 65504.0
# Whole and uneven rows and columns; one block, several, several ahead; tensor and CUDA cores.
SHAPES = [
    (32, 64, Tile(16, 64)),
    (37, 128, Tile(32, 64, num_stages=2)),
    (33, 77, Tile(16, 128)),
    (50, 200, Tile(32, 64, num_stages=3)),
    (40, 300, Tile(16, 64, num_stages=2)),
    (48, 100, Tile(16, 32)),
    (41, 96, Tile(8, 64)),
]
# One rounding of x or n to float16, one of a float16 output: half a unit each, and float32 sums.
HALF = 2.0**-11


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("rows", "columns", "tile"), SHAPES)
def test_product(rows: int, columns: int, tile: Tile, normed: bool, dtype, format, inputs) -> None:
    make = inputs(dtype)
    x, norm = make.random(1, columns) * 3, make.norm(columns) if normed else None
    weight = make.narrow(rows, columns, format, biased=rows % 2 == 1)
    # Of either dtype, float16 keeps enough digits to show an error.
    out, again = (make.poisoned(1, rows, dtype=torch.float16) for _ in range(2))
    Linear(x, weight, out, tile, norm).launch()
    Linear(x, weight, again, tile, norm).launch()
    assert error(out, linear_reference(x, weight, norm)) < 1.5 * HALF
    assert torch.equal(out, again)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [64, 61])
def test_every_finite_code_arrives_exactly_and_at_its_place(columns: int, format, inputs) -> None:
    make = inputs(torch.bfloat16)
    codes = torch.arange(256, dtype=torch.uint8).view(NARROW_DTYPES[format])
    codes = codes[codes.float().isfinite()]
    places = (torch.arange(70)[:, None] * columns + torch.arange(columns)) % len(codes)
    data = codes.view(torch.uint8)[places].view(codes.dtype).to(make.device)
    for column in (0, 17, columns - 1):
        unit = torch.zeros(1, columns, dtype=torch.bfloat16, device=make.device)
        unit[0, column] = 1.0
        out = make.poisoned(1, 70)
        Linear(unit, WeightMatrix(data), out, Tile(16, 64)).launch()
        assert torch.equal(out[0].float(), data[:, column].float())


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("format", FORMATS)
def test_a_float16_x_is_added_to_a_bfloat16_residual(splits: int, format, inputs) -> None:
    make = inputs(torch.bfloat16)
    rows, columns, tile = 35, 300, Tile(16, 64, num_stages=2, splits=splits)
    x = make.random(1, columns, dtype=torch.float16)
    weight, start = make.narrow(rows, columns, format, biased=True), make.random(1, rows)
    workspace = make.workspace(*split_workspace(weight, tile, 1))
    results = []
    for _ in range(2):
        residual = start.clone()
        LinearResidual(x, weight, residual, tile, workspace).launch()
        results.append(residual)
    assert error(results[0], linear_residual_reference(x, weight, start)) < 2.0**-7
    assert torch.equal(*results)
    assert not workspace.counters.any()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("batch", [1, 3])
def test_gate_and_up_pass_float16_on(batch: int, format, inputs) -> None:
    make = inputs(torch.bfloat16)
    x, weight = make.random(batch, 96), make.narrow(70, 96, format)
    norm = make.norm(96) if batch == 1 else None
    out = make.poisoned(batch, 35, dtype=torch.float16)
    NormGateUp(x, norm, weight, out, Tile(32, 64)).launch()
    # The error of gate counts again in silu.
    assert error(out, norm_gate_up_reference(x, norm, weight)) < 4 * HALF


@pytest.mark.parametrize("batch", [1, 2])
def test_an_activation_beyond_float16_becomes_its_largest_value(batch: int, inputs) -> None:
    make = inputs(torch.bfloat16)
    x = torch.full((batch, 64), 300.0, dtype=torch.bfloat16, device=make.device)
    data = torch.ones(32, 64, device=make.device).to(torch.float8_e4m3fn)
    out = make.poisoned(batch, 16, dtype=torch.float16)
    NormGateUp(x, None, WeightMatrix(data), out, Tile(16, 64)).launch()
    assert (out == LARGEST).all()


@pytest.mark.parametrize("value", [1e9, -1e9, float("inf")])
def test_x_beyond_float16_counts_as_its_largest_value(value: float, inputs) -> None:
    make = inputs(torch.bfloat16)
    x = torch.zeros(1, 64, dtype=torch.bfloat16, device=make.device)
    x[0, 5] = value
    data = torch.eye(64, device=make.device).to(torch.int8)
    out = make.poisoned(1, 64)
    Linear(x, WeightMatrix(data, torch.ones(64, device=make.device)), out, Tile(16, 64)).launch()
    expected = torch.zeros(64)
    expected[5] = LARGEST if value > 0 else -LARGEST
    torch.testing.assert_close(out[0].cpu().float(), expected, rtol=2.0**-7, atol=0)


def test_a_nan_in_x_shows_everywhere(inputs) -> None:
    make = inputs(torch.bfloat16)
    x = make.random(1, 64)
    x[0, 3] = float("nan")
    out = torch.zeros(1, 32, dtype=torch.bfloat16, device=make.device)
    Linear(x, make.narrow(32, 64, "fp8_e4m3"), out, Tile(16, 64)).launch()
    assert out.isnan().all()


@pytest.mark.parametrize("format", FORMATS)
def test_the_head_chooses_the_largest_logit(format, inputs) -> None:
    make = inputs(torch.bfloat16)
    x, norm, weight = make.random(1, 96), make.norm(96), make.narrow(83, 96, format)
    tokens = torch.zeros(1, 4, dtype=torch.int64, device=make.device)
    logits = make.poisoned(1, 83, dtype=torch.float32)
    position = make.position(1)
    NormHead(x, norm, weight, tokens, position, Tile(16, 64), make.workspace(1, 1), logits).launch()
    assert error(logits, linear_reference(x, weight, norm)) < 2.0**-7
    assert int(tokens[0, 2]) == int(logits.argmax())
    assert int(position) == 2


@pytest.mark.parametrize("splits", [1, 3])
def test_attention_passes_float16_on(splits: int, inputs) -> None:
    make = inputs(torch.bfloat16)
    q, k, v = make.random(2, 4, 32), make.random(2, 2, 80, 32), make.random(2, 2, 80, 32, seed=1)
    v *= 200
    out = make.poisoned(2, 4, 32, dtype=torch.float16)
    tile = Tile(1, 16, splits=splits)
    workspace = make.workspace(4096, 64)
    DecodeAttention(q, k, v, make.position(70), 0.2, out, tile, workspace).launch()
    expected = decode_attention_reference(q, k, v, 70, 0.2)
    # The softmax's weights are bfloat16.
    assert error(out, expected) < 2.0**-7


@pytest.mark.parametrize(("x_dtype", "out_dtype"), [(torch.float32, torch.float16)])
def test_refuses_other_pairs_of_dtypes(x_dtype, out_dtype, inputs) -> None:
    make = inputs(x_dtype)
    out = make.poisoned(1, 32, dtype=out_dtype)
    with pytest.raises(ValueError, match=r"out is torch\.float16"):
        NormGateUp(
            make.random(1, 64), None, make.narrow(64, 64, "int8"), out, Tile(16, 64)
        ).launch()
