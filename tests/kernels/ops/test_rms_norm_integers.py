"""Activations as int16, and the products of INT4 weights with them."""

from dataclasses import replace

import pytest
import torch

from decodescope.kernels.host.packed import in_column_order, packed
from decodescope.kernels.host.packing import PACKED_FORMATS, Packing
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import LARGEST_INTEGER, Norm, WeightMatrix
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.rms_norm import rms_norm_reference
from decodescope.kernels.ops.rms_norm_integers import RmsNormIntegers
from tests.helpers.kernel_fixtures import assert_near
from tests.helpers.refusals import refuses

INT4 = [each for each in PACKED_FORMATS.values() if not each.e2m1]
# As GPTQ checkpoints may have them.
GROUPS_OF_96 = replace(PACKED_FORMATS["int4_asym"], group=96)


def integers(x: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.full(x.shape, 99, dtype=torch.int16, device=x.device)
    scale = torch.full((len(x),), torch.nan, device=x.device)
    RmsNormIntegers(x, norm, codes, scale).launch()
    return codes, scale


def ones(features: int, device: str | torch.device) -> Norm:
    return Norm(torch.ones(features, device=device), 1e-6)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 32), torch.float32),
        ((3, 96), torch.bfloat16),
        ((2, 4096), torch.float16),
        ((1, 14336), torch.bfloat16),
    ],
)
def test_codes_are_off_by_their_bound_at_most(shape, dtype, inputs) -> None:
    make = inputs(dtype)
    x, norm = make.random(*shape) * 3 + 0.5, make.norm(shape[1])
    x[0, 1] *= 200
    operation = RmsNormIntegers(x, norm, *integers(x, norm))
    numbers, expected_scale = operation.reference(0)
    assert ((operation.scale - expected_scale).abs() <= 1e-6 * expected_scale).all()
    found = in_column_order(operation.out).double()
    # Half a step, and the rounding of float32 in numbers of up to 32,639.
    assert ((found - numbers).abs() <= 0.5 + 1e-6 * numbers.abs()).all()
    assert (found.abs().amax(1) == LARGEST_INTEGER).all()
    n = rms_norm_reference(x, norm)
    error = found * operation.scale.double()[:, None] - n
    # 2^-16 and 2^-20 for float32.
    assert (error.abs() <= 1.07 * 2**-16 * n.abs().amax(1, keepdim=True)).all()
    assert (error.norm(dim=1) <= 1.07 * 2**-16 * shape[1] ** 0.5 * n.norm(dim=1)).all()


@pytest.mark.filterwarnings("ignore:overflow")
def test_rows_of_special_values(device: str) -> None:
    x = torch.zeros(5, 32, device=device)
    x[1, 3], x[2, 31], x[3, 0], x[4, 5] = torch.nan, -torch.inf, 1e-44, 1e30
    codes, scale = integers(x, ones(32, device))
    assert torch.equal(scale.isnan().cpu(), torch.tensor([False, True, True, False, False]))
    assert not codes[:4].any()
    # The sum of squares is infinite, so the norm is zero.
    assert (scale[[0, 4]] == 0).all()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_number_gives_none_in_either_form(value: float, inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, norm, x = make.narrow(16, 64, "int4_asym"), make.norm(64), make.random(1, 64)
    x[0, 7] = value
    codes, scale = integers(x, norm)
    for operands, inner in (((codes, scale), None), ((x, None), norm)):
        out = make.poisoned(1, 16)
        out.zero_()
        Linear(operands[0], weight, out, Tile(16, 64), inner, operands[1]).launch()
        assert out.isnan().all()


@pytest.mark.parametrize(
    ("format", "columns", "tile"),
    [
        *((format, 288, Tile(32, 128, 4, 2)) for format in (*INT4, GROUPS_OF_96)),
        (PACKED_FORMATS["int4"], 32, Tile(32, 64)),
    ],
    ids=str,
)
def test_a_product(format, columns: int, tile: Tile, inputs) -> None:
    make, packing = inputs(torch.float32), Packing(format, columns)
    x, norm = make.random(1, columns), make.norm(columns)
    codes = torch.randint(0, 16, (37, columns), dtype=torch.uint8)
    scales = torch.rand(37, packing.groups, 2 if format.scales == "fp16_zero" else 1) + 0.5
    scales[..., 1:] = scales[..., 1:].mul(10).round()
    weight = WeightMatrix(
        packed(codes, scales.half().float(), packing).to(make.device),
        bias=make.random(37),
        packing=packing,
    )
    assert weight.takes_integers
    integer, scale = integers(x, norm)
    out = make.poisoned(1, 37)
    operation = Linear(integer, weight, out, tile, None, scale)
    operation.launch()
    assert_near(out, operation.reference(0)[0])
    # Each of n is off by 2^-16 of the largest at most.
    n = rms_norm_reference(x, norm)
    most = 2**-16 * n.abs().max() * weight.dense().abs().sum(1)
    assert ((out - linear_reference(n, weight)).abs() <= 1.07 * most).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("columns", "tile"),
    [
        (4096, Tile(16, 4096, 4)),
        (4128, Tile(16, 2048, 2, 2)),
        (14336, Tile(8, 1024, 1, 3)),
    ],
)
def test_awkward_sizes(columns: int, tile: Tile, inputs) -> None:
    for format in (*INT4, GROUPS_OF_96):
        test_a_product(format, columns, tile, inputs)


def test_fused_products(inputs) -> None:
    make = inputs(torch.float16)
    weight, norm, x = make.narrow(34, 288, "int4"), make.norm(288), make.random(1, 288)
    codes, scale = integers(x, norm)
    up = make.poisoned(1, 17)
    operation = NormGateUp(codes, None, weight, up, Tile(32, 64), scale)
    operation.launch()
    assert_near(up, operation.reference(0)[0])
    residual, tile = make.random(1, 34, seed=9), Tile(32, 64, 4, splits=3)
    workspace = make.workspace(*split_workspace(weight, tile, 1))
    added = LinearResidual(codes, weight, residual, tile, workspace, x_scale=scale)
    (expected,) = added.reference(0)
    added.launch()
    assert_near(residual, expected)


@pytest.mark.parametrize("code", [0, 15])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_sums_are_exact(code: int, sign: int, inputs) -> None:
    make, packing = inputs(torch.float32), Packing(PACKED_FORMATS["int4_asym"], 64)
    codes, ends = torch.full((4, 64), code, dtype=torch.uint8), torch.ones(4, 1, 2)
    ends[..., 1] = torch.tensor([0.0, 15.0, 8.0, 7.0])[:, None]
    weight = WeightMatrix(packed(codes, ends, packing).to(make.device), packing=packing)
    x = torch.full((1, 64), float(sign), device=make.device)
    out = make.poisoned(1, 4)
    integer, scale = integers(x, ones(64, make.device))
    Linear(integer, weight, out, Tile(4, 32), None, torch.ones_like(scale)).launch()
    assert torch.equal(out[0].cpu(), 64 * sign * LARGEST_INTEGER * (code - ends[:, 0, 1]))


CODES_OF_ONE = torch.zeros(1, 32, dtype=torch.int16)
PACKED = {
    name: WeightMatrix(
        torch.zeros(2, Packing(each, 32).width, dtype=torch.int32),
        torch.ones(2) if each.row_scaled else None,
        packing=Packing(each, 32),
    )
    for name, each in PACKED_FORMATS.items()
}


def launch(x: torch.Tensor, weight: WeightMatrix, scaled: bool = True) -> None:
    out, scale = torch.zeros(len(x), 2), torch.ones(len(x)) if scaled else None
    Linear(x, weight, out, Tile(16, 32), None, scale).launch()


test_refuses = refuses(
    [
        (lambda: launch(CODES_OF_ONE, PACKED["mxfp4"]), "must be one token and INT4"),
        (lambda: launch(CODES_OF_ONE.repeat(2, 1), PACKED["int4"]), "must be one token"),
        (lambda: launch(CODES_OF_ONE, PACKED["int4"], False), "x_scale with x of torch.int16"),
        (
            lambda: integers(torch.zeros(1, 33), ones(33, "cpu")),
            r"x \[1, 33\]: must be \[rows, a multiple of 32\]",
        ),
    ]
)
