import pytest
import torch

from decodescope.kernels.host.weights import (
    NARROW_DTYPES,
    NarrowFormat,
    WeightMatrix,
    quantized_rows,
)
from decodescope.kernels.ops.embedding import BLOCK, Embed, embed_reference
from tests.helpers.kernel_inputs import at, random
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def ids(batch: int, columns: int, vocabulary: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocabulary)
    return torch.randint(vocabulary, (batch, columns), generator=generator).to(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("vocabulary", "hidden", "batch", "columns"),
    [(7, 64, 1, 3), (101, 577, 3, 9), (13, BLOCK + 1, 2, 1), (1, 1, 1, 1)],
)
def test_rows_of_the_tokens_at_the_position(
    vocabulary: int, hidden: int, batch: int, columns: int, dtype: torch.dtype, device: str
) -> None:
    table = WeightMatrix(random(vocabulary, hidden, dtype=dtype, device=device))
    tokens = ids(batch, columns, vocabulary, device)
    for position in {0, columns // 2, columns - 1}:
        out = torch.full((batch, hidden), float("nan"), dtype=dtype, device=device)
        Embed(table, tokens, at(position, device), out).launch()
        assert torch.equal(out, table.data[tokens[:, position]])
        assert torch.equal(out.double(), embed_reference(table, tokens, position))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("format", "scaled"), [*((format, True) for format in NARROW_DTYPES), ("fp8_e5m2", False)]
)
def test_rows_of_a_narrow_table_are_rounded_once(
    format: NarrowFormat, scaled: bool, dtype: torch.dtype, device: str
) -> None:
    table = WeightMatrix(*quantized_rows(random(101, 577, device=device), format, scaled))
    tokens = ids(3, 4, 101, device)
    out = torch.full((3, 577), float("nan"), dtype=dtype, device=device)
    operation = Embed(table, tokens, at(1, device), out)
    operation.launch()
    expected = embed_reference(table, tokens, 1)
    # The interpreter truncates to bf16, which no GPU does.
    step = torch.finfo(dtype).eps * (2 if device == "cpu" and dtype == torch.bfloat16 else 1)
    assert bool(((out.double() - expected).abs() <= step / 2 * expected.abs() * 1.001).all())
    assert operation.bytes_moved(1) == 3 * (577 * (1 + dtype.itemsize) + 4 * scaled + 8)


def test_agrees_with_the_module(device: str) -> None:
    module = torch.nn.Embedding(11, 40).to(device)
    tokens = ids(2, 4, 11, device)
    out = torch.full((2, 40), float("nan"), device=device)
    with torch.no_grad():
        Embed(WeightMatrix(module.weight), tokens, at(2, device), out).launch()
        assert torch.equal(out, module(tokens[:, 2]))


@pytest.mark.parametrize(
    ("token", "position", "row"),
    [(2**40, 0, 4), (-1, 0, 0), (5, 0, 4), (3, 1, 3), (3, 2**31 - 1, 3), (3, -1, 3)],
)
def test_out_of_range_reads_the_nearest_in_range(
    token: int, position: int, row: int, device: str
) -> None:
    storage = random(15, 8, device=device)
    table = storage[5:10]
    out = torch.full((1, 8), float("nan"), device=device)
    tokens = torch.tensor([[token]], device=device)
    Embed(WeightMatrix(table), tokens, at(position, device), out).launch()
    assert torch.equal(out[0], table[row])


TABLE = WeightMatrix(torch.zeros(5, 8))
INT8 = WeightMatrix(torch.zeros(5, 8, dtype=torch.int8))
BIASED = WeightMatrix(torch.zeros(5, 8), bias=torch.zeros(5))
TOKENS = torch.zeros(1, 3, dtype=torch.int64)


test_refuses = refuses(
    (Embed(table, tokens, position, out).launch, complaint)
    for table, tokens, position, out, complaint in [
        (TABLE, TOKENS[:, :0], at(0, "cpu"), torch.zeros(1, 8), "tokens .*not empty"),
        (TABLE, TOKENS.int(), at(0, "cpu"), torch.zeros(1, 8), "tokens .*must be torch.int64"),
        (TABLE, TOKENS, at(0, "cpu").long(), torch.zeros(1, 8), "position"),
        (TABLE, TOKENS, at(0, "cpu"), torch.zeros(2, 8), r"out .*\[1, 8\]"),
        (TABLE, TOKENS, at(0, "cpu"), torch.zeros(1, 8).half(), "out is torch.float16"),
        (INT8, TOKENS, at(0, "cpu"), torch.zeros(1, 8).int(), "out is torch.int32"),
        (BIASED, TOKENS, at(0, "cpu"), torch.zeros(1, 8), "no bias"),
    ]
)


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_read() -> None:
    vocabulary, hidden = 2**19 + 3, 4096
    table = torch.zeros(vocabulary, hidden, dtype=torch.bfloat16, device="cuda")
    table[-1] = 1.0
    out = torch.full((1, hidden), float("nan"), dtype=torch.bfloat16, device="cuda")
    tokens = torch.tensor([[vocabulary - 1]], device="cuda")
    Embed(WeightMatrix(table), tokens, at(0, "cuda"), out).launch()
    assert out.eq(1).all()
