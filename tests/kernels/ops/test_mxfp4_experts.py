"""Experts in MXFP4 against float64."""

import pytest
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from decodescope.kernels.host.experts import ClampedGate, Experts
from decodescope.kernels.host.mxfp4 import Mxfp4Matrix, packed_words, unpacked
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_down import ExpertsDown, experts_down_reference
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp, experts_gate_up_reference
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


def experts_of(make, count: int, intermediate: int, hidden: int, **scales: int) -> Experts:
    return Experts(
        make.weight(count, hidden),
        packed(make, count * 2 * intermediate, hidden, **scales),
        packed(make, count * hidden, intermediate, **scales),
        2,
        normalized=True,
        interleaved=True,
        clamped=ClampedGate(1.702, 7.0),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("intermediate", "hidden", "tile"),
    [
        (96, 96, Tile(8, 64, num_stages=2)),
        (32, 160, Tile(4, 128)),
        (64, 32, Tile(16, 64, num_stages=3)),
    ],
)
def test_experts_of_4_bits(intermediate, hidden, tile, dtype, inputs, assert_close) -> None:
    make = inputs(dtype)
    experts = experts_of(make, 3, intermediate, hidden)
    x, logits, norm = make.random(1, hidden), make.random(1, 3, seed=4), make.norm(hidden)
    out, again = (make.poisoned(1, 2, intermediate) for _ in range(2))
    ExpertsGateUp(x, norm, experts, logits, out, tile).launch()
    ExpertsGateUp(x, norm, experts, logits, again, tile).launch()
    assert_close(out, experts_gate_up_reference(x, norm, experts, logits))
    assert torch.equal(out, again)

    residual = make.random(1, hidden, seed=5)
    expected = experts_down_reference(out, experts, logits, residual)
    ExpertsDown(out, experts, logits, residual, tile).launch()
    assert_close(residual, expected)


def test_a_batch_of_4_bit_experts_is_refused(inputs) -> None:
    make = inputs(torch.float32)
    experts = experts_of(make, 3, 32, 32)
    operands = make.random(2, 32), None, experts, make.random(2, 3), make.poisoned(2, 2, 32)
    with pytest.raises(ValueError, match="2 tokens: experts in MXFP4 multiply one"):
        ExpertsGateUp(*operands, Tile(16, 32)).launch()


@pytest.mark.parametrize("scale", [0, 40, 127, 180])
def test_every_code_with_extreme_scales(scale: int, inputs, assert_close) -> None:
    """Row r of the one expert has the code r % 16 in every column."""
    make = inputs(torch.float32)
    words = (torch.arange(32) % 16 * 0x11111111).to(torch.uint32)[:, None].expand(32, 4)
    scales = torch.full((32, 1), scale, dtype=torch.uint8, device=make.device)
    down = Mxfp4Matrix(words.contiguous().view(torch.int32).to(make.device), scales)
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    expected = torch.cat((codes, -codes)).repeat(2)[:, None] * 2.0 ** (scale - 127)
    assert torch.equal(down.dense().cpu(), expected.expand(32, 32))
    experts = Experts(make.weight(1, 32), packed(make, 64, 32), down, 1, normalized=True)
    x, residual = make.random(1, 1, 32), torch.zeros(1, 32, device=make.device)
    ExpertsDown(x, experts, make.random(1, 1), residual, Tile(16, 32)).launch()
    assert_close(residual, (down.dense() @ x.double().flatten())[None])


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
