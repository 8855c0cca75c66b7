import pytest
import torch
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

SHAPES = [
    (1, 12, 64, Tile(4, 64)),
    (1, 13, 77, Tile(8, 128)),
    (1, 7, 577, Tile(16, 128, num_stages=3)),
    (1, 3, 33, Tile(2, 16, num_stages=2)),
    (1, 5, 100, Tile(16, 32, num_stages=4)),
    (2, 21, 64, Tile(16, 32)),
    (3, 16, 77, Tile(32, 64)),
    (8, 35, 100, Tile(32, 128)),
    (16, 19, 51, Tile(64, 64)),
    (17, 9, 40, Tile(32, 32)),
    (64, 19, 51, Tile(32, 64)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("normed", "batch", "intermediate", "hidden", "tile"),
    [
        *((False, *shape) for shape in SHAPES),
        *((True, *shape) for shape in SHAPES if shape[0] == 1),
    ],
)
def test_gated_product(
    normed: bool,
    batch: int,
    intermediate: int,
    hidden: int,
    tile: Tile,
    dtype: torch.dtype,
    inputs,
    assert_close,
) -> None:
    make = inputs(dtype)
    x = make.random(batch, hidden) * 3
    norm = make.norm(hidden) if normed else None
    scaled, biased = intermediate % 2 == 1, intermediate > 5 and batch != 2
    gate_up = make.weight(2 * intermediate, hidden, scaled=scaled, biased=biased)
    out, again = make.poisoned(batch, intermediate), make.poisoned(batch, intermediate)
    NormGateUp(x, norm, gate_up, out, tile).launch()
    NormGateUp(x, norm, gate_up, again, tile).launch()
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))
    assert torch.equal(out, again)


def test_gate_rows_of_a_batch_come_before_up_rows(inputs) -> None:
    make = inputs(torch.float32)
    data = torch.zeros(6, 4, device=make.device)
    data[:3, 0], data[3:, 1] = 2.0, torch.tensor([1.0, 10.0, 100.0], device=make.device)
    x = torch.ones(2, 4, device=make.device)
    out = make.poisoned(2, 3)
    NormGateUp(x, None, WeightMatrix(data), out, Tile(16, 16)).launch()
    silu = 2.0 / (1.0 + torch.exp(torch.tensor(-2.0)).item())
    expected = silu * data[3:, 1].expand(2, 3)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_gelu_gate_agrees_with_transformers_in_fp32(batch: int, inputs) -> None:
    make = inputs(torch.float32)
    x, gate_up, out = make.random(batch, 64) * 3, make.weight(40, 64), make.poisoned(batch, 20)
    NormGateUp(x, None, gate_up, out, Tile(16, 32), activation="gelu_tanh").launch()
    gate, up = (x @ gate_up.dense(torch.float32).T).chunk(2, dim=-1)
    expected = ACT2FN["gelu_pytorch_tanh"](gate) * up
    torch.testing.assert_close(out, expected, atol=3e-6, rtol=1e-5)
    reference = norm_gate_up_reference(x, None, gate_up, "gelu_tanh")
    torch.testing.assert_close(reference.float(), expected, atol=3e-6, rtol=1e-5)


def test_agrees_with_transformers_in_fp32(inputs) -> None:
    make = inputs(torch.float32)
    config = LlamaConfig(hidden_size=64, intermediate_size=20, mlp_bias=True)
    mlp = LlamaMLP(config).to(make.device).requires_grad_(False)
    llama_norm = LlamaRMSNorm(64, eps=1e-5).to(make.device).requires_grad_(False)
    norm, x, out = make.norm(64), make.random(1, 64), make.poisoned(1, 20)
    llama_norm.weight.copy_(norm.weight)
    halves = (mlp.gate_proj, mlp.up_proj)
    weights, biases = zip(*((half.weight, half.bias) for half in halves), strict=True)
    gate_up = WeightMatrix(torch.cat(weights), bias=torch.cat(biases))
    NormGateUp(x, norm, gate_up, out, Tile(4, 32)).launch()
    # With down_proj the identity, the module returns the gated product itself.
    mlp.down_proj = torch.nn.Identity()
    expected = mlp(llama_norm(x))
    torch.testing.assert_close(norm_gate_up_reference(x, norm, gate_up).float(), expected)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)


def test_large_activations_in_fp16(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    # Neither their squares nor their products with the norm's weight are numbers in fp16.
    x = make.random(1, 96) * 15_000
    norm = Norm(make.norm(96).weight * 20, 1e-5)
    gate_up, out = make.weight(14, 96), make.poisoned(1, 7)
    NormGateUp(x, norm, gate_up, out, Tile(4, 64)).launch()
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))


# The interpreter's exponential warns if it overflows.
@pytest.mark.parametrize("size", [80.0, pytest.param(200.0, marks=pytest.mark.gpu)])
def test_a_large_gate_passes_or_closes(size: float, inputs) -> None:
    make = inputs(torch.float32)
    gate = torch.tensor([[size], [-size], [0.0]], device=make.device)
    gate_up = WeightMatrix(torch.cat((gate, torch.full_like(gate, 2.0))))
    out = make.poisoned(1, 3)
    NormGateUp(torch.ones(1, 1, device=make.device), None, gate_up, out, Tile(8, 16)).launch()
    assert out[0].tolist() == pytest.approx([2 * size, 0.0, 0.0], abs=1e-30)


def test_eps_matters_for_small_activations(inputs, assert_close) -> None:
    make = inputs(torch.float32)
    x, norm = make.random(1, 64) * 1e-3, Norm(make.norm(64).weight, 1e-5)
    gate_up, out = make.weight(6, 64), make.poisoned(1, 3)
    NormGateUp(x, norm, gate_up, out, Tile(2, 64)).launch()
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))


def test_writes_no_further_than_its_units(inputs) -> None:
    make = inputs(torch.float32)
    storage = make.poisoned(1, 13)
    out = storage[:, 4:9]
    NormGateUp(make.random(1, 48), None, make.weight(10, 48), out, Tile(8, 16)).launch()
    assert storage.isfinite().tolist()[0] == [4 <= column < 9 for column in range(13)]


GATE_UP = WeightMatrix(torch.zeros(6, 8))
X, OUT, TILE = torch.zeros(1, 8), torch.zeros(1, 3), Tile(4, 8)
NORM = Norm(torch.ones(8), 1e-6)


test_refuses = refuses(
    (NormGateUp(x, norm, gate_up, out, tile).launch, complaint)
    for x, norm, gate_up, out, tile, complaint in [
        (torch.zeros(8), NORM, GATE_UP, OUT, TILE, r"x \[8\]: must be \[1 to 64, 8\]"),
        (torch.zeros(65, 8), NORM, GATE_UP, torch.zeros(65, 3), TILE, "1 to 64"),
        (torch.zeros(1, 9), NORM, GATE_UP, OUT, TILE, r"x .*\[1, 8\]"),
        (X.int(), NORM, GATE_UP, OUT.int(), TILE, "x is torch.int32"),
        (X.to("meta"), NORM, GATE_UP, OUT, TILE, "x .* on meta"),
        (X, NORM, WeightMatrix(torch.zeros(5, 8)), OUT, TILE, "gate_up of 5 rows"),
        (X, NORM, GATE_UP, torch.zeros(1, 6), TILE, r"out .*\[1, 6\].*\[1, 3\]"),
        (X, NORM, GATE_UP, torch.zeros(2, 3), TILE, r"out .*\[1, 3\]"),
        (X, NORM, GATE_UP, OUT.half(), TILE, "out is torch.float16"),
        (X, NORM, GATE_UP, torch.zeros(3, 2).T[:1], TILE, "out has strides"),
        (X, NORM, GATE_UP, OUT.to("meta"), TILE, "out .* on meta"),
        (X, Norm(torch.ones(6), 1e-6), GATE_UP, OUT, TILE, r"norm weight .*\[8\]"),
        (X, Norm(torch.ones(8).int(), 1e-6), GATE_UP, OUT, TILE, "norm weight is torch.int32"),
        (X, Norm(torch.ones(16)[::2], 1e-6), GATE_UP, OUT, TILE, "norm weight has strides"),
        (X, Norm(torch.ones(8, device="meta"), 1e-6), GATE_UP, OUT, TILE, "norm .* on meta"),
        (X, NORM, GATE_UP, X[:, 5:], TILE, "out shares memory with x"),
        (X, NORM, GATE_UP, OUT, Tile(1, 8), "tile of one row"),
        (X, NORM, GATE_UP, OUT, Tile(4, 8, splits=2), "tile of 2 splits"),
        (torch.zeros(2, 8), None, GATE_UP, torch.zeros(2, 3), Tile(8, 16), "at least 16 x 16"),
        (torch.zeros(2, 8), NORM, GATE_UP, torch.zeros(2, 3), Tile(16, 16), "a norm of 2 tokens"),
    ]
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tile", [Tile(4, 2048, 4, 3), Tile(2, 512, 2, 12), Tile(16, 1024, 8)])
@pytest.mark.parametrize("hidden", [4096, 5120, 6143])
def test_large_products(hidden: int, tile: Tile, dtype: torch.dtype, inputs, assert_close) -> None:
    make = inputs(dtype)
    x, norm, gate_up = make.random(1, hidden) * 3, make.norm(hidden), make.weight(2002, hidden)
    out, again = make.poisoned(1, 1001), make.poisoned(1, 1001)
    NormGateUp(x, norm, gate_up, out, tile).launch()
    NormGateUp(x, norm, gate_up, again, tile).launch()
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))
    assert torch.equal(out, again)


@pytest.mark.gpu
def test_large_activations_of_a_real_size_in_fp16(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    x = make.random(1, 4096).clamp(-4, 4) * 15_000
    norm = Norm(make.norm(4096).weight * 20, 1e-5)
    gate_up, out = make.weight(2002, 4096), make.poisoned(1, 1001)
    NormGateUp(x, norm, gate_up, out, Tile(4, 2048, 4, 2)).launch()
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))
