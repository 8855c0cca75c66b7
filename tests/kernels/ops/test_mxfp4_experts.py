"""Experts in MXFP4 against float64."""

from dataclasses import replace

import pytest
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from decodescope.kernels.host.activation import ClampedGate
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.mxfp4 import Mxfp4Matrix, packed_words, unpacked
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_down import experts_down_reference
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp, experts_gate_up_reference
from tests.helpers.kernel_inputs import run_experts_down
from tests.helpers.refusals import refuses


def packed(make, rows: int, columns: int, lowest: int = 120, highest: int = 124) -> Mxfp4Matrix:
    """Every code, scales from `lowest` on, and a bias."""
    generator = torch.Generator().manual_seed(rows)
    shape = rows, columns // 32
    words = torch.randint(-(2**31), 2**31, (rows, columns // 8), generator=generator)
    scales = torch.randint(lowest, highest, shape, generator=generator).to(torch.uint8)
    return Mxfp4Matrix(
        words.int().to(make.device), scales.to(make.device), make.random(rows, seed=2)
    )


def experts_of(
    make, count: int, intermediate: int, hidden: int, chosen: int = 2, interleaved: bool = True
) -> Experts:
    return Experts(
        make.weight(count, hidden),
        packed(make, count * 2 * intermediate, hidden),
        packed(make, count * hidden, intermediate),
        chosen,
        normalized=True,
        interleaved=interleaved,
        activation=ClampedGate(1.702, 7.0),
    )


def check(make, experts: Experts, batch: int, tile: Tile, assert_close) -> None:
    """Both halves of an MLP against the reference, and the same bits twice. Some logits are
    equal."""
    hidden, size = experts.router.columns, (batch, experts.chosen, experts.intermediate)
    x, logits = make.random(batch, hidden), (2 * make.random(batch, experts.count, seed=4)).round()
    norm = make.norm(hidden) if batch == 1 else None
    out, again = (make.poisoned(*size) for _ in range(2))
    ExpertsGateUp(x, norm, experts, logits, out, tile).launch()
    ExpertsGateUp(x, norm, experts, logits, again, tile).launch()
    assert_close(out, experts_gate_up_reference(x, norm, experts, logits))
    assert torch.equal(out, again)

    residual, again = (make.random(batch, hidden, seed=5) for _ in range(2))
    expected = experts_down_reference(out, experts, logits, residual)
    run_experts_down(out, experts, logits, residual, tile)
    run_experts_down(out, experts, logits, again, tile)
    assert_close(residual, expected)
    assert torch.equal(residual, again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("intermediate", "hidden", "tile"),
    [
        (32, 96, Tile(16, 64, num_stages=2)),
        (96, 160, Tile(32, 128)),
        (64, 32, Tile(32, 64, num_stages=3)),
    ],
)
def test_one_token(intermediate, hidden, tile, dtype, inputs, assert_close) -> None:
    make = inputs(dtype)
    check(make, experts_of(make, 3, intermediate, hidden), 1, tile, assert_close)


# (batch, count, chosen, intermediate, hidden, tile)
BATCHES = [
    (3, 5, 3, 96, 160, Tile(64, 128, num_stages=2)),
    (2, 3, 2, 32, 96, Tile(32, 64)),
    (16, 1, 1, 64, 32, Tile(64, 32)),
    (2, 4, 4, 32, 32, Tile(64, 16)),
    (33, 9, 2, 32, 64, Tile(64, 64)),
]


@pytest.mark.parametrize(
    ("dtype", "batch", "count", "chosen", "intermediate", "hidden", "tile"),
    [
        *((torch.float32, *sizes) for sizes in BATCHES),
        *((dtype, *BATCHES[0]) for dtype in (torch.float16, torch.bfloat16)),
    ],
)
def test_a_batch(
    dtype, batch, count, chosen, intermediate, hidden, tile, inputs, assert_close
) -> None:
    make = inputs(dtype)
    experts = experts_of(make, count, intermediate, hidden, chosen, interleaved=batch != 2)
    check(make, experts, batch, tile, assert_close)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "tile", [Tile(128, 64, 4, 4), Tile(64, 128, 4, 4), Tile(128, 256, 8, 3), Tile(32, 128, 4, 2)]
)
@pytest.mark.parametrize("batch", [2, 16, 64])
def test_pipelined_tiles_of_wide_experts(batch, tile, dtype, inputs, assert_close) -> None:
    make = inputs(dtype)
    check(make, experts_of(make, 8, 1440, 1472, chosen=4), batch, tile, assert_close)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("matrix", ["gate_up", "down"])
def test_nan_in_an_expert_stays_with_its_tokens(matrix: str, inputs) -> None:
    make = inputs(torch.bfloat16)
    experts = experts_of(make, 4, 32, 32)
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
    scale = getattr(experts, matrix).scale.clone()
    scale.view(4, -1)[2] = 255
    found = outputs(replace(experts, **{matrix: replace(getattr(experts, matrix), scale=scale)}))
    assert torch.equal(found[0], whole[0])
    assert whole.isfinite().all()
    assert not found[1:].isfinite().any()


def test_bytes_of_a_batch_are_those_of_packed_rows(inputs) -> None:
    make = inputs(torch.bfloat16)
    experts = experts_of(make, 8, 32, 64)
    x, logits, out = make.random(2, 64), make.random(2, 8), make.poisoned(2, 2, 32)
    gate_up = ExpertsGateUp(x, None, experts, logits, out, Tile(16, 32))
    # Of four experts: 4 bits, a scale for each 32, and a bias for each row.
    assert gate_up.bytes_moved(0) == 4 * 64 * (64 // 2 + 64 // 32 + 2) + 2 * (128 + 16 + 128)
    products = torch.zeros(2, 2, 64, device=make.device)
    down = ExpertsDownProducts(out, experts, logits, products, Tile(16, 32))
    assert down.bytes_moved(0) == 4 * 64 * (32 // 2 + 1 + 2) + 2 * (128 + 16) + 4 * 256


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        *((torch.float32, scale) for scale in (0, 40, 127, 180)),
        *((torch.bfloat16, scale) for scale in (27, 127, 160)),
    ],
)
def test_every_code_with_extreme_scales(
    dtype: torch.dtype, scale: int, batch: int, inputs, assert_close
) -> None:
    """Row r of the one expert has the code r % 16 in every column."""
    make = inputs(dtype)
    blocks = (torch.arange(32) % 16 * 17).to(torch.uint8)[:, None, None].expand(32, 1, 16)
    scales = torch.full((32, 1), scale, dtype=torch.uint8, device=make.device)
    down = Mxfp4Matrix(packed_words(blocks).to(make.device), scales)
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    expected = torch.cat((codes, -codes)).repeat(2)[:, None] * 2.0 ** (scale - 127)
    assert torch.equal(down.dense().cpu(), expected.expand(32, 32))
    experts = Experts(make.weight(1, 32), packed(make, 64, 32), down, 1, normalized=True)
    x, residual = make.random(batch, 1, 32), torch.zeros(batch, 32, device=make.device, dtype=dtype)
    run_experts_down(x, experts, make.random(batch, 1), residual, Tile(16, 32))
    assert_close(residual, x.double().flatten(1) @ down.dense().T)


def test_bytes_of_a_checkpoint_become_words() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 5, 16), generator=generator).to(torch.uint8)
    scales = torch.randint(100, 140, (3, 10, 5), generator=generator).to(torch.uint8)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    found = unpacked(packed_words(blocks), scales, torch.bfloat16)
    assert torch.equal(found.mT, expected)


WORDS, SCALES = torch.zeros(6, 8, dtype=torch.int32), torch.zeros(6, 2, dtype=torch.uint8)
test_refuses = refuses(
    [
        (lambda: Mxfp4Matrix(WORDS.long(), SCALES), "words of torch.int64"),
        (lambda: Mxfp4Matrix(WORDS, SCALES[:, :1]), r"must be uint8 \[6, 2\]"),
        (lambda: Mxfp4Matrix(WORDS), "scales of MXFP4"),
        (lambda: Mxfp4Matrix(WORDS[:, :6].contiguous(), SCALES[:, :1]), "48 columns"),
    ]
)
