"""Activations as pairs of E4M3, and the products of FP8 weights with them."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from decodescope.kernels.host.packed import sums_of_pairs
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import PAIR_X, Norm, WeightMatrix
from decodescope.kernels.ops import scaled_rows
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.rms_norm import MAX_FEATURES, rms_norm_reference
from decodescope.kernels.ops.rms_norm_pairs import RmsNormPairs
from tests.helpers.gpu_code import Asked, gpu_code
from tests.helpers.refusals import refuses

E4M3 = torch.float8_e4m3fn
# Of the FP8 tensor cores for each 32 columns of a block: the sum so far, and what is added to it,
# are truncated to about 14 bits.
TENSOR_CORE_ERROR = 2.0**-12


def pairs(x: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales in memory that was NaN before."""
    codes = torch.full(x.shape, 0x7F7F, dtype=torch.int16, device=x.device).view(PAIR_X)
    scale = torch.full((len(x),), nan, device=x.device)
    RmsNormPairs(x, norm, codes, scale).launch()
    return codes, scale


def ones(features: int, device: str | torch.device) -> Norm:
    return Norm(torch.ones(features, device=device), 1e-6)


def values(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return sums_of_pairs(codes) * scale.double()[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 1), (5, 77), (64, 130), (2, 4096), (2, 14336)])
def test_pairs_are_off_by_their_bound_at_most(shape, dtype, inputs) -> None:
    make = inputs(dtype)
    x, norm = make.random(*shape) * 3 + 0.5, make.norm(shape[1])
    x[0, -1] *= 200
    operation = RmsNormPairs(x, norm, *pairs(x, norm))
    numbers, expected_scale = operation.reference(0)
    assert torch.equal(operation.scale.double(), expected_scale)
    assert torch.equal(operation.scale.log2(), operation.scale.log2().round())
    assert ((numbers.abs().amax(1) > 223) & (numbers.abs().amax(1) < 449)).all()
    error = (sums_of_pairs(operation.out) - numbers).abs()
    # And the rounding of float32.
    assert (error <= (2.0**-8 * numbers.abs()).clamp(min=2.0**-14) + 1e-6 * numbers.abs()).all()


def test_a_row_of_one_number_compiles(device: str, monkeypatch) -> None:
    """PTX converts four numbers at once, which the interpreter does not."""
    given = {}
    monkeypatch.setattr(scaled_rows, "launch", lambda *operands, **options: given.update(options))
    x = torch.ones(2, 1, device=device)
    RmsNormPairs(x, ones(1, device), x.new_empty(2, 1, dtype=PAIR_X), x.new_empty(2)).launch()
    types = {"x_ptr": "*bf16", "g_ptr": "*bf16", "out_ptr": "*u16", "scale_ptr": "*fp32"}
    types |= {"features": "i32", "eps": "fp32"}
    constants = {"BLOCK": given["BLOCK"], "PDL": True}
    asked = Asked(
        "decodescope.kernels.ops.rms_norm_pairs", "_rms_norm_pairs_kernel", types, constants
    )
    assert "cvt.rn.satfinite.e4m3x2" in gpu_code("ttgir", {"pairs": asked})["pairs"]


def test_each_part_is_the_nearest_e4m3(device: str) -> None:
    """Of every number of E4M3, what is half-way between two, and its neighbours."""
    numbers = torch.arange(127, dtype=torch.uint8).view(E4M3).float()
    halfway = (numbers[1:] + numbers[:-1]) / 2
    beside = [halfway.nextafter(torch.tensor(end)) for end in (-inf, inf)]
    n = torch.cat([each * sign for each in (numbers, halfway, *beside) for sign in (1, -1)])
    # The norm of ones is its weight.
    codes, scale = pairs(torch.ones(2, len(n), device=device), Norm(n.to(device), 0.0))
    assert scale.tolist() == [1, 1]
    upper, lower = codes.view(E4M3).cpu().chunk(2, dim=1)
    for row in range(2):
        assert torch.equal(upper[row].float(), n.to(E4M3).float())
        assert torch.equal(lower[row].float(), ((n - n.to(E4M3).float()) * 16).to(E4M3).float())


@pytest.mark.filterwarnings("ignore:overflow|invalid value")
def test_rows_of_special_values(device: str) -> None:
    x = torch.zeros(5, 32, device=device)
    x[1, 3], x[2, 31], x[3, 0], x[4, 5] = nan, -inf, 1e-44, 1e30
    codes, scale = pairs(x, ones(32, device))
    assert (scale == 1).all()
    found = values(codes, scale)
    assert found[1].isnan().all()
    assert found.isnan().sum(1).tolist() == [0, 32, 1, 0, 0]
    # The sum of squares of large values is infinite, so the norm is zero.
    assert not found.nan_to_num(nan=0.0).any()


def test_the_largest_value_may_be_that_of_float32(device: str) -> None:
    most = torch.finfo(torch.float32).max
    x, norm = torch.ones(2, 32, device=device), ones(32, device)
    norm.weight[:3] = torch.tensor([-most, most / 2, most / 1024])
    found = values(*pairs(x, norm))
    assert ((found / rms_norm_reference(x, norm) - 1).abs()[:, :3] < 2.0**-8).all()


def test_a_token_does_not_see_the_others(inputs) -> None:
    make = inputs(torch.bfloat16)
    x, norm = make.random(6, 90), make.norm(90)
    x[2], x[4] = nan, 1e15
    codes, scale = pairs(x, norm)
    for row in range(6):
        alone, alone_scale = pairs(x[row : row + 1], norm)
        assert torch.equal(alone[0].view(torch.int16), codes[row].view(torch.int16))
        assert torch.equal(alone_scale[0], scale[row])


@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize(
    ("batch", "columns", "tile"),
    [
        (2, 64, Tile(64, 256, 4, 3)),
        (5, 288, Tile(32, 128, 4, 2)),
        (17, 80, Tile(16, 16, 4)),
        (64, 272, Tile(64, 64, 4, 4)),
    ],
)
def test_a_product(format, batch: int, columns: int, tile: Tile, inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, x = make.narrow(37, columns, format, biased=True), make.random(batch, columns)
    # The largest x leaves the others few digits in `upper`.
    x[1, 3] = 900
    norm = make.norm(columns)
    codes, scale = pairs(x, norm)
    out = make.poisoned(batch, 37, dtype=torch.float32)
    operation = Linear(codes, weight, out, tile, None, scale)
    operation.launch()
    limit = -(-tile.columns // 32) * TENSOR_CORE_ERROR if out.is_cuda else 1e-6
    # What pairs leave of n is 2^-9 of it at most on average, and is added up at random.
    for expected, most in (
        (operation.reference(0)[0], limit),
        (linear_reference(x, weight, norm), limit + 2.0**-9),
    ):
        error = (out.double() - expected).norm(dim=1) / expected.norm(dim=1)
        assert (error < most).all()


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize(
    ("batch", "columns", "tile"),
    [
        (16, 4096, Tile(64, 256, 4, 4)),
        (16, 14336, Tile(128, 128, 8, 3)),
        (33, 4112, Tile(128, 128, 4, 3)),
        (64, 2048, Tile(256, 128, 8, 3)),
    ],
)
def test_awkward_sizes(format, batch: int, columns: int, tile: Tile, inputs) -> None:
    test_a_product(format, batch, columns, tile, inputs)


def test_fused_products(inputs, assert_close) -> None:
    make = inputs(torch.bfloat16)
    weight, norm, x = make.narrow(34, 288, "fp8_e4m3"), make.norm(288), make.random(3, 288)
    codes, scale = pairs(x, norm)
    up = make.poisoned(3, 17)
    operation = NormGateUp(codes, None, weight, up, Tile(32, 64), scale)
    operation.launch()
    assert_close(up, operation.reference(0)[0])
    residual, tile = make.random(3, 34, seed=9), Tile(32, 64, 4, splits=3)
    workspace = make.workspace(*split_workspace(weight, tile, 3))
    added = LinearResidual(codes, weight, residual, tile, workspace, x_scale=scale)
    (expected,) = added.reference(0)
    added.launch()
    assert_close(residual, expected)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_no_number_gives_none_in_its_token_alone(inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, x = make.narrow(16, 64, "fp8_e4m3"), make.random(4, 64)
    x[2, 7] = nan
    codes, scale = pairs(x, make.norm(64))
    out = make.poisoned(4, 16)
    out.zero_()
    Linear(codes, weight, out, Tile(16, 64), None, scale).launch()
    assert out.isnan().all(1).tolist() == [False, False, True, False]
    assert not out[[0, 1, 3]].isnan().any()


FITTING = RmsNormPairs(
    torch.zeros(3, 8), ones(8, "cpu"), torch.zeros(3, 8).to(PAIR_X), torch.zeros(3)
)
WEIGHTS = {
    format: WeightMatrix(torch.zeros(2, 32, dtype=format), torch.ones(2))
    for format in (E4M3, torch.int8)
}
CODES = torch.zeros(3, 32).to(PAIR_X)


def launch(x: torch.Tensor, format: torch.dtype, scaled: bool = True) -> None:
    out, scale = torch.zeros(len(x), 2), torch.ones(len(x)) if scaled else None
    Linear(x, WEIGHTS[format], out, Tile(16, 32), None, scale).launch()


test_refuses = refuses(
    [
        (lambda: replace(FITTING, x=torch.zeros(8)).launch(), r"x \[8\]: must be"),
        (lambda: replace(FITTING, x=torch.zeros(3, 8).to(E4M3)).launch(), "x is torch.float8"),
        (lambda: replace(FITTING, x=torch.zeros(3, 0)).launch(), f"must be 1 to {MAX_FEATURES}"),
        (lambda: replace(FITTING, out=torch.zeros(3, 8)).launch(), "out is torch.float32"),
        (lambda: replace(FITTING, scale=torch.zeros(2)).launch(), r"scale is torch.float32 \[2\]"),
        (lambda: launch(CODES[:1], E4M3), "pairs must be of several tokens"),
        (lambda: launch(CODES, torch.int8), "x must be float16 or bfloat16"),
        (lambda: launch(CODES, E4M3, False), "x_scale with x of torch.uint16"),
    ]
)
