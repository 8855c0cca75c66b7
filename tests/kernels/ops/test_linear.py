import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.linear import Linear, linear_reference
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


SINGLE = [
    (1, 12, 64, Tile(4, 64)),
    (1, 13, 77, Tile(4, 128)),
    (1, 9, 100, Tile(2, 32)),
    (1, 7, 577, Tile(8, 256)),
    (1, 1, 33, Tile(1, 16)),
    (1, 5, 96, Tile(1, 32)),
]
BATCHES = [
    (2, 31, 100, Tile(32, 64)),
    (7, 30, 77, Tile(16, 64)),
    (16, 33, 129, Tile(64, 128)),
    (17, 20, 40, Tile(16, 64)),
    (33, 17, 77, Tile(32, 32)),
    (64, 33, 129, Tile(64, 128)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("normed", "batch", "rows", "columns", "tile"),
    [*((False, *shape) for shape in SINGLE + BATCHES), *((True, *shape) for shape in SINGLE)],
)
def test_product(
    normed: bool,
    batch: int,
    rows: int,
    columns: int,
    tile: Tile,
    dtype: torch.dtype,
    inputs,
    assert_close,
) -> None:
    make = inputs(dtype)
    x = make.random(batch, columns) * 3
    weight = make.weight(rows, columns, scaled=rows % 2 == 1, biased=normed == (batch != 2))
    norm = make.norm(columns) if normed else None
    out, again = make.poisoned(batch, rows), make.poisoned(batch, rows)
    Linear(x, weight, out, tile, norm).launch()
    Linear(x, weight, again, tile, norm).launch()
    assert_close(out, linear_reference(x, weight, norm))
    assert torch.equal(out, again)


def test_agrees_with_transformers_in_fp32(inputs) -> None:
    make = inputs(torch.float32)
    llama = LlamaRMSNorm(64, eps=1e-5).to(make.device).requires_grad_(False)
    module = torch.nn.Linear(64, 10).to(make.device).requires_grad_(False)
    x, out, norm = make.random(1, 64), make.poisoned(1, 10), make.norm(64)
    llama.weight.copy_(norm.weight)
    Linear(x, WeightMatrix(module.weight, bias=module.bias), out, Tile(2, 64), norm).launch()
    torch.testing.assert_close(out, module(llama(x)), atol=1e-6, rtol=1e-6)


def test_unit_rows_read_single_elements(inputs) -> None:
    make = inputs(torch.bfloat16)
    x, out = make.random(1, 40), make.poisoned(1, 14)
    weight = torch.eye(40, dtype=torch.bfloat16, device=make.device)[::3].contiguous()
    Linear(x, WeightMatrix(weight), out, Tile(4, 16)).launch()
    assert torch.equal(out, x[:, ::3])


def test_a_norm_of_values_whose_squares_overflow_fp16(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    x, weight, out = make.random(1, 64) * 3000, make.weight(6, 64), make.poisoned(1, 6)
    norm = Norm(torch.ones(64, dtype=torch.float16, device=make.device), 1e-6)
    Linear(x, weight, out, Tile(2, 64), norm).launch()
    assert_close(out, linear_reference(x, weight, norm))


def test_float32_weights_of_a_float16_batch(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    x, out = make.random(3, 40), make.poisoned(3, 18)
    weight = WeightMatrix(make.random(18, 40, dtype=torch.float32))
    Linear(x, weight, out, Tile(16, 32)).launch()
    assert_close(out, linear_reference(x, WeightMatrix(weight.data.half())))


def test_a_sequence_does_not_depend_on_its_neighbours(inputs) -> None:
    make = inputs(torch.float32)
    x, weight = make.random(5, 50), make.weight(20, 50)
    others = make.random(5, 50, seed=1) * 100
    others[3] = x[3]
    out, among_others = make.poisoned(5, 20), make.poisoned(5, 20)
    Linear(x, weight, out, Tile(32, 32)).launch()
    Linear(others, weight, among_others, Tile(32, 32)).launch()
    assert torch.equal(out[3], among_others[3])
    assert not torch.equal(out[2], among_others[2])


def test_writes_no_further_than_its_rows(inputs) -> None:
    make = inputs(torch.float32)
    storage = make.poisoned(1, 13)
    Linear(make.random(1, 32), make.weight(5, 32), storage[:, 4:9], Tile(4, 32)).launch()
    assert storage.isfinite().tolist()[0] == [4 <= column < 9 for column in range(13)]


WEIGHT = WeightMatrix(torch.zeros(6, 8))
TILE = Tile(2, 8)
SHARED = torch.zeros(1, 8)


test_refuses = refuses(
    (Linear(x, WEIGHT, out, tile, norm).launch, complaint)
    for x, out, tile, norm, complaint in [
        (torch.zeros(8), torch.zeros(1, 6), TILE, None, r"x \[8\]: must be \[1 to 64, 8\]"),
        (torch.zeros(65, 8), torch.zeros(65, 6), TILE, None, "1 to 64"),
        (torch.zeros(1, 9), torch.zeros(1, 6), TILE, None, r"x .*\[1, 8\]"),
        (torch.zeros(1, 8), torch.zeros(2, 6), TILE, None, r"out .*\[1, 6\]"),
        (torch.zeros(1, 8), torch.zeros(1, 6).long(), TILE, None, "out is torch.int64"),
        (torch.zeros(1, 8).int(), torch.zeros(1, 6).int(), TILE, None, "x is torch.int32"),
        (torch.zeros(1, 8), torch.zeros(1, 6), Tile(2, 8, splits=2), None, "tile of 2 splits"),
        (SHARED, SHARED[:, :6], TILE, None, "out shares memory with x"),
        (torch.zeros(2, 8), torch.zeros(2, 6), Tile(8, 16), None, "at least 16 x 16"),
        (torch.zeros(2, 8), torch.zeros(2, 6), Tile(16, 8), None, "tile of 16 x 8"),
        (
            torch.zeros(1, 8),
            torch.zeros(1, 6),
            TILE,
            Norm(torch.zeros(6), 1e-6),
            r"norm weight .*\[8\]",
        ),
        (
            torch.zeros(2, 8),
            torch.zeros(2, 6),
            Tile(16, 16),
            Norm(torch.zeros(8), 1e-6),
            "a norm of 2 tokens",
        ),
    ]
)


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_read(inputs) -> None:
    rows, columns = 2**19 + 3, 4096
    data = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    data[-1] = 1.0
    x = torch.ones(1, columns, dtype=torch.bfloat16, device="cuda")
    out = inputs(torch.bfloat16).poisoned(1, rows)
    Linear(x, WeightMatrix(data), out, Tile(4, 4096)).launch()
    assert out[0, -1].item() == columns
    assert out.count_nonzero().item() == 1
