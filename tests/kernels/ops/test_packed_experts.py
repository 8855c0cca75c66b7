"""Experts of 4 bits against float64."""

from dataclasses import replace

import pytest
import torch

from decodescope.kernels.host.activation import ClampedGate
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.packed import packed
from decodescope.kernels.host.packing import PACKED_FORMATS, Packing
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.experts_down import experts_down_reference
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp, experts_gate_up_reference
from tests.helpers.kernel_fixtures import assert_near
from tests.helpers.kernel_inputs import run_experts_down

FORMATS = ("mxfp4", "int4", "int4_asym", "nvfp4")


def experts_of(
    make,
    format: str,
    count: int,
    intermediate: int,
    hidden: int,
    chosen: int = 2,
    interleaved: bool = True,
) -> Experts:
    return Experts(
        make.weight(count, hidden),
        make.narrow(count * 2 * intermediate, hidden, format, biased=True),
        make.narrow(count * hidden, intermediate, format, biased=True),
        chosen,
        normalized=True,
        interleaved=interleaved,
        activation=ClampedGate(1.702, 7.0),
    )


def check(make, experts: Experts, batch: int, tile: Tile) -> None:
    """Both halves of an MLP against the reference, and the same bits twice. Some logits are
    equal."""
    hidden, size = experts.router.columns, (batch, experts.chosen, experts.intermediate)
    x, logits = make.random(batch, hidden), (2 * make.random(batch, experts.count, seed=4)).round()
    norm = make.norm(hidden) if batch == 1 else None
    out, again = (make.poisoned(*size) for _ in range(2))
    ExpertsGateUp(x, norm, experts, logits, out, tile).launch()
    ExpertsGateUp(x, norm, experts, logits, again, tile).launch()
    assert_near(out, experts_gate_up_reference(x, norm, experts, logits))
    assert torch.equal(out, again)

    residual, again = (make.random(batch, hidden, seed=5) for _ in range(2))
    expected = experts_down_reference(out, experts, logits, residual)
    run_experts_down(out, experts, logits, residual, tile)
    run_experts_down(out, experts, logits, again, tile)
    assert_near(residual, expected)
    assert torch.equal(residual, again)


# Intermediate and hidden size, and tile: whole chunks and others.
SIZES = [
    (32, 96, Tile(16, 64, num_stages=2)),
    (33, 100, Tile(32, 128)),
    (64, 32, Tile(32, 64, num_stages=3)),
]


@pytest.mark.parametrize(
    ("format", "sizes", "dtype"),
    [
        *((format, SIZES[1], torch.bfloat16) for format in FORMATS),
        ("mxfp4", SIZES[0], torch.float16),
        *(("mxfp4", sizes, torch.float32) for sizes in SIZES),
    ],
)
def test_one_token(format: str, sizes, dtype: torch.dtype, inputs) -> None:
    make, (intermediate, hidden, tile) = inputs(dtype), sizes
    check(make, experts_of(make, format, 3, intermediate, hidden), 1, tile)


# (batch, count, chosen, intermediate, hidden, tile)
BATCHES = [
    (3, 5, 3, 96, 160, Tile(64, 128, num_stages=2)),
    (2, 3, 2, 33, 100, Tile(32, 64)),
    (16, 1, 1, 64, 32, Tile(64, 32)),
    (2, 4, 4, 32, 32, Tile(64, 16)),
    (33, 9, 2, 32, 64, Tile(64, 64)),
]


@pytest.mark.parametrize(
    ("format", "dtype", "batch", "count", "chosen", "intermediate", "hidden", "tile"),
    [
        *(("mxfp4", torch.float32, *sizes) for sizes in BATCHES),
        *((format, torch.bfloat16, *BATCHES[1]) for format in FORMATS),
        ("mxfp4", torch.float16, *BATCHES[0]),
    ],
)
def test_a_batch(format, dtype, batch, count, chosen, intermediate, hidden, tile, inputs) -> None:
    make = inputs(dtype)
    interleaved = batch != 2
    check(
        make,
        experts_of(make, format, count, intermediate, hidden, chosen, interleaved),
        batch,
        tile,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("batch", "tile"),
    [
        (1, Tile(8, 1024, 1)),
        (1, Tile(2, 1024, 1, 2)),
        (1, Tile(4, 256, 1, 3)),
        (2, Tile(64, 128, 4, 4)),
        (16, Tile(128, 64, 4, 4)),
        (64, Tile(128, 256, 8, 3)),
        (64, Tile(32, 128, 4, 2)),
    ],
)
def test_pipelined_tiles_of_wide_experts(batch, tile, dtype, format, inputs) -> None:
    make = inputs(dtype)
    check(make, experts_of(make, format, 8, 1440, 1472, chosen=4), batch, tile)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("matrix", ["gate_up", "down"])
def test_nan_in_an_expert_stays_with_its_tokens(matrix: str, inputs) -> None:
    make = inputs(torch.bfloat16)
    experts = experts_of(make, "mxfp4", 4, 32, 32)
    x = make.random(3, 32)
    logits = make.random(3, 4, dtype=torch.float32) + torch.eye(4, device=make.device)[:3] * 9
    logits[1, 2], logits[0, 2] = 8, -8
    logits = logits.to(x.dtype)

    def outputs(experts: Experts) -> torch.Tensor:
        out, residual = make.poisoned(3, 2, 32), torch.zeros_like(x)
        ExpertsGateUp(x, None, experts, logits, out, Tile(16, 32)).launch()
        run_experts_down(out, experts, logits, residual, Tile(16, 32))
        return residual

    whole = outputs(experts)
    data = getattr(experts, matrix).data.clone()
    # The scale of the one group of each row.
    data.view(4, -1, 8)[2, :, 4] = 255
    found = outputs(replace(experts, **{matrix: replace(getattr(experts, matrix), data=data)}))
    assert torch.equal(found[0], whole[0])
    assert whole.isfinite().all()
    assert not found[1:].isfinite().any()


def test_bytes_of_a_batch_are_those_of_packed_rows(inputs) -> None:
    make = inputs(torch.bfloat16)
    experts = experts_of(make, "mxfp4", 8, 32, 64)
    x, logits, out = make.random(2, 64), make.random(2, 8), make.poisoned(2, 2, 32)
    gate_up = ExpertsGateUp(x, None, experts, logits, out, Tile(16, 32))
    # Of four experts: 4 bits, scales in 16 bytes, and a bias for each row.
    assert gate_up.bytes_moved(0) == 4 * 64 * (64 // 2 + 16 + 2) + 2 * (128 + 16 + 128)
    products = torch.zeros(2, 2, 64, device=make.device)
    down = ExpertsDownProducts(out, experts, logits, products, Tile(16, 32))
    assert down.bytes_moved(0) == 4 * 64 * (32 // 2 + 16 + 2) + 2 * (128 + 16) + 4 * 256


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [
        *((torch.float32, exponent) for exponent in (-127, -87, 0, 53)),
        *((torch.bfloat16, exponent) for exponent in (-20, 0, 4)),
    ],
)
def test_every_code_with_extreme_scales(dtype, exponent: int, batch: int, inputs) -> None:
    """Row r of the one expert has the code r % 16 in every column."""
    make, packing = inputs(dtype), Packing(PACKED_FORMATS["mxfp4"], 32)
    rows = (torch.arange(32) % 16).to(torch.uint8)[:, None].expand(32, 32)
    words = packed(rows, torch.full((32, 1, 1), 2.0**exponent), packing)
    down = WeightMatrix(words.to(make.device), packing=packing)
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    expected = torch.cat((codes, -codes)).repeat(2)[:, None] * 2.0**exponent
    assert torch.equal(down.dense().cpu(), expected.expand(32, 32))
    gate_up = make.narrow(64, 32, "mxfp4")
    experts = Experts(make.weight(1, 32), gate_up, down, 1, normalized=True)
    x, residual = make.random(batch, 1, 32), torch.zeros(batch, 32, device=make.device, dtype=dtype)
    run_experts_down(x, experts, make.random(batch, 1), residual, Tile(16, 32))
    assert_near(residual, x.double().flatten(1) @ down.dense().T)
