import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.linear import linear, linear_reference

# One rounding: at most half a unit of fp16, a whole one of bf16, which the interpreter truncates.
LIMITS = {torch.float32: 5e-7, torch.float16: 5e-4, torch.bfloat16: 8e-3}
DTYPES = list(LIMITS)


def random(*shape: int, seed: int = 0, dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((seed, *shape)))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def random_weight(
    rows: int, columns: int, dtype: torch.dtype, device: str, scaled: bool, biased: bool
) -> WeightMatrix:
    scale = random(rows, dtype=torch.float32, device=device).abs() if scaled else None
    bias = random(rows, seed=1, dtype=dtype, device=device) if biased else None
    return WeightMatrix(random(rows, columns, dtype=dtype, device=device), scale, bias)


def poisoned(rows: int, columns: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.full((rows, columns), float("nan"), dtype=dtype, device=device)


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return ((out.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (12, 64, Tile(4, 64)),
        (13, 77, Tile(4, 128)),
        (9, 100, Tile(2, 32)),
        (7, 577, Tile(8, 256)),
        (1, 33, Tile(1, 16)),
        (5, 96, Tile(1, 32)),
    ],
)
def test_one_vector(
    rows: int, columns: int, tile: Tile, normed: bool, dtype: torch.dtype, device: str
) -> None:
    x = random(1, columns, dtype=dtype, device=device) * 3
    weight = random_weight(rows, columns, dtype, device, scaled=rows % 2 == 1, biased=normed)
    norm = Norm(random(columns, dtype=dtype, device=device), 1e-5) if normed else None
    out, again = poisoned(1, rows, dtype, device), poisoned(1, rows, dtype, device)
    linear(x, weight, out, tile, norm)
    linear(x, weight, again, tile, norm)
    assert relative_error(out, linear_reference(x, weight, norm)) < LIMITS[dtype]
    assert torch.equal(out, again)


@pytest.mark.parametrize("batch", [2, 5, 16])
def test_batches_go_to_the_batched_kernel(batch: int, device: str) -> None:
    dtype = torch.float32
    x = random(batch, 48, dtype=dtype, device=device)
    weight = random_weight(19, 48, dtype, device, scaled=True, biased=True)
    norm = Norm(random(48, dtype=dtype, device=device), 1e-5)
    out = poisoned(batch, 19, dtype, device)
    linear(x, weight, out, Tile(16, 32), norm)
    assert relative_error(out, linear_reference(x, weight, norm)) < LIMITS[dtype]


def test_agrees_with_transformers_in_fp32(device: str) -> None:
    llama = LlamaRMSNorm(64, eps=1e-5).to(device)
    module = torch.nn.Linear(64, 10).to(device)
    x = random(1, 64, dtype=torch.float32, device=device)
    out = poisoned(1, 10, torch.float32, device)
    with torch.no_grad():
        llama.weight.copy_(random(64, dtype=torch.float32, device=device))
        weight = WeightMatrix(module.weight, bias=module.bias)
        linear(x, weight, out, Tile(2, 64), Norm(llama.weight, 1e-5))
        torch.testing.assert_close(out, module(llama(x)), atol=1e-6, rtol=1e-6)


def test_unit_rows_read_single_elements(device: str) -> None:
    x = random(1, 40, dtype=torch.bfloat16, device=device)
    weight = WeightMatrix(torch.eye(40, dtype=torch.bfloat16, device=device)[::3].contiguous())
    out = poisoned(1, 14, torch.bfloat16, device)
    linear(x, weight, out, Tile(4, 16))
    assert torch.equal(out, x[:, ::3])


def test_a_norm_of_values_whose_squares_overflow_fp16(device: str) -> None:
    x = random(1, 64, dtype=torch.float16, device=device) * 3000
    weight = random_weight(6, 64, torch.float16, device, scaled=False, biased=False)
    norm = Norm(torch.ones(64, dtype=torch.float16, device=device), 1e-6)
    out = poisoned(1, 6, torch.float16, device)
    linear(x, weight, out, Tile(2, 64), norm)
    assert relative_error(out, linear_reference(x, weight, norm)) < LIMITS[torch.float16]


def test_writes_no_further_than_its_rows(device: str) -> None:
    weight = random_weight(5, 32, torch.float32, device, scaled=False, biased=False)
    storage = poisoned(1, 13, torch.float32, device)
    linear(random(1, 32, dtype=torch.float32, device=device), weight, storage[:, 4:9], Tile(4, 32))
    assert storage.isfinite().tolist()[0] == [4 <= column < 9 for column in range(13)]


WEIGHT = WeightMatrix(torch.zeros(6, 8))
TILE = Tile(2, 8)
SHARED = torch.zeros(1, 8)


@pytest.mark.parametrize(
    ("x", "out", "tile", "norm", "complaint"),
    [
        (torch.zeros(8), torch.zeros(1, 6), TILE, None, r"x \[8\]: must be \[1 to 16, 8\]"),
        (torch.zeros(17, 8), torch.zeros(17, 6), TILE, None, "1 to 16"),
        (torch.zeros(1, 9), torch.zeros(1, 6), TILE, None, r"x .*\[1, 8\]"),
        (torch.zeros(1, 8), torch.zeros(2, 6), TILE, None, r"out .*\[1, 6\]"),
        (torch.zeros(1, 8), torch.zeros(1, 6).half(), TILE, None, "out is torch.float16"),
        (torch.zeros(1, 8).int(), torch.zeros(1, 6).int(), TILE, None, "x is torch.int32"),
        (torch.zeros(1, 8), torch.zeros(1, 6), Tile(2, 8, splits=2), None, "tile of 2 splits"),
        (SHARED, SHARED[:, :6], TILE, None, "out shares memory with x"),
        (
            torch.zeros(1, 8),
            torch.zeros(1, 6),
            TILE,
            Norm(torch.zeros(6), 1e-6),
            r"norm weight .*\[8\]",
        ),
    ],
)
def test_refuses(
    x: torch.Tensor, out: torch.Tensor, tile: Tile, norm: Norm | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        linear(x, WEIGHT, out, tile, norm)


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_read() -> None:
    rows, columns = 2**19 + 3, 4096
    data = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    data[-1] = 1.0
    x = torch.ones(1, columns, dtype=torch.bfloat16, device="cuda")
    out = poisoned(1, rows, torch.bfloat16, "cuda")
    linear(x, WeightMatrix(data), out, Tile(4, 4096))
    assert out[0, -1].item() == columns
    assert out.count_nonzero().item() == 1
