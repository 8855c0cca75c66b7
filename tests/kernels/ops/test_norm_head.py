import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.linear import linear_reference
from decodescope.kernels.ops.norm_head import NormHead
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
UNWRITTEN = -7

SHAPES = [
    (50, 64, Tile(16, 64)),
    (29, 77, Tile(8, 128)),
    (17, 577, Tile(8, 128, num_stages=3)),
    (1, 33, Tile(1, 16, num_stages=2)),
    (37, 100, Tile(16, 32, num_stages=4)),
]


def history(length: int, device: str, batch: int = 1) -> torch.Tensor:
    return torch.full((batch, length), UNWRITTEN, dtype=torch.int64, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("vocabulary", "hidden", "tile"), SHAPES)
def test_logits_and_the_largest_of_them(
    vocabulary: int,
    hidden: int,
    tile: Tile,
    normed: bool,
    dtype: torch.dtype,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    make = inputs(dtype)
    x = make.random(1, hidden)
    norm = make.norm(hidden) if normed else None
    head = make.weight(vocabulary, hidden, scaled=vocabulary % 2 == 1, biased=hidden > 64)
    tokens, position = history(7, make.device), make.position(2)
    workspace, logits = make.workspace(0, 1), make.poisoned(1, vocabulary, dtype=torch.float32)
    NormHead(x, norm, head, tokens, position, tile, workspace, logits).launch()
    assert_close(logits.to(dtype), linear_reference(x, head, norm))
    assert torch.equal(logits, logits.to(dtype).float())
    assert_reset(workspace)
    NormHead(x, norm, head, tokens, position, tile, workspace).launch()
    assert_reset(workspace)
    chosen = logits.argmax().item()
    assert tokens[0].tolist() == [UNWRITTEN] * 3 + [chosen] * 2 + [UNWRITTEN] * 2
    assert position.tolist() == [4]


def test_agrees_with_transformers_in_fp32(inputs) -> None:
    make = inputs(torch.float32)
    llama_norm = LlamaRMSNorm(64, eps=1e-5).to(make.device).requires_grad_(False)
    module = torch.nn.Linear(64, 30, bias=False).to(make.device).requires_grad_(False)
    norm, x, logits = make.norm(64), make.random(1, 64), make.poisoned(1, 30)
    llama_norm.weight.copy_(norm.weight)
    expected = module(llama_norm(x))
    head = WeightMatrix(module.weight)
    torch.testing.assert_close(linear_reference(x, head, norm).float(), expected)
    tokens, position = history(2, make.device), make.position(0)
    NormHead(x, norm, head, tokens, position, Tile(4, 64), make.workspace(0, 1), logits).launch()
    torch.testing.assert_close(logits, expected, atol=1e-6, rtol=1e-6)
    assert tokens[0, 1] == expected.argmax()


@pytest.mark.parametrize("batch", [1, 2])
def test_logits_have_a_soft_cap(batch: int, inputs) -> None:
    make = inputs(torch.float32)
    x, head = make.random(batch, 64) * 9, make.weight(30, 64)
    tokens, logits = history(2, make.device, batch), make.poisoned(batch, 30)
    memory = tokens, make.position(0), Tile(16, 64), make.workspace(0, 1)
    operation = NormHead(x, None, head, *memory, logits, cap=3.0)
    operation.launch()
    expected = torch.tanh(linear_reference(x, head) / 3) * 3
    torch.testing.assert_close(logits.double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(operation.reference(0)[0], expected)
    assert torch.equal(tokens[:, 1], logits.argmax(-1))


def chosen(head: WeightMatrix, x: torch.Tensor, make) -> int:
    tokens, workspace = history(2, make.device), make.workspace(0, 1)
    NormHead(x, None, head, tokens, make.position(0), Tile(8, 16), workspace).launch()
    return int(tokens[0, 1].item())


@pytest.mark.parametrize(
    ("dtype", "largest"), [(torch.float32, -1.5), (torch.float16, 3.0), (torch.bfloat16, 3.0)]
)
@pytest.mark.parametrize(
    "indices", [(5, 6), (9, 5, 29), (7, 8), (0, 30), (30,)], ids=lambda indices: f"{indices}"
)
def test_equal_logits_go_to_the_lowest_index(
    indices: tuple[int, ...], largest: float, dtype: torch.dtype, inputs
) -> None:
    make = inputs(dtype)
    logits = torch.full((31, 1), -2.0, dtype=dtype, device=make.device)
    logits[list(indices)] = largest
    x = torch.ones(1, 1, dtype=dtype, device=make.device)
    assert chosen(WeightMatrix(logits), x, make) == min(indices)


@pytest.mark.parametrize(("dtype", "index"), [(torch.float32, 9), (torch.float16, 2)])
def test_logits_equal_in_the_models_dtype_are_equal(dtype: torch.dtype, index: int, inputs) -> None:
    make = inputs(dtype)
    data = torch.zeros(11, 2, dtype=dtype, device=make.device)
    data[2, 0] = 1.0
    data[9] = 1.0
    # 1 + 2^-12 is a float32, in float16 it is 1.
    x = torch.tensor([[1.0, 2.0**-12]], dtype=dtype, device=make.device)
    assert chosen(WeightMatrix(data), x, make) == index


@pytest.mark.parametrize("signs", [(-1.0, 1.0), (1.0, -1.0)])
def test_the_two_zeros_are_equal(signs: tuple[float, float], inputs) -> None:
    make = inputs(torch.float32)
    scale = torch.tensor([-1.0] + [signs[0]] * 5 + [signs[1]] * 5, device=make.device)
    data = torch.zeros(11, 1, device=make.device)
    data[0] = 1.0
    assert chosen(WeightMatrix(data, scale), torch.ones(1, 1, device=make.device), make) == 1


@pytest.mark.parametrize(
    ("special", "index"),
    [
        ({36: -1e30}, 36),
        ({3: float("inf"), 9: float("inf"), 20: 1e38}, 3),
        ({8: float("inf"), 30: float("nan"), 33: float("nan")}, 30),
        ({}, 0),
    ],
    ids=["finite", "infinite", "nan", "none"],
)
def test_extreme_logits_are_ordered_as_by_argmax(
    special: dict[int, float], index: int, inputs
) -> None:
    make = inputs(torch.float32)
    bias = torch.full((37,), -float("inf"), device=make.device)
    for row, value in special.items():
        bias[row] = value
    head = WeightMatrix(torch.ones(37, 1, device=make.device), bias=bias)
    assert bias.argmax() == index
    assert chosen(head, torch.ones(1, 1, device=make.device), make) == index


@pytest.mark.parametrize(
    ("at", "written"), [(0, 1), (1, 2), (2, None), (5, None), (-1, None), (-1000, None)]
)
def test_tokens_are_written_only_inside_the_history(
    at: int, written: int | None, inputs, assert_reset
) -> None:
    make = inputs(torch.float32)
    storage = torch.full((3, 3), UNWRITTEN, dtype=torch.int64, device=make.device)
    workspace, position = make.workspace(0, 1), make.position(at)
    x, head = make.random(1, 16), make.weight(9, 16)
    NormHead(x, None, head, storage[1:2], position, Tile(4, 16), workspace).launch()
    places = [] if written is None else [[1, written]]
    assert (storage != UNWRITTEN).nonzero().tolist() == places
    assert position.item() == at + 1
    assert_reset(workspace)


def test_without_a_choice_only_logits_are_written(inputs, assert_reset) -> None:
    make = inputs(torch.float32)
    x, head, workspace = make.random(1, 16), make.weight(9, 16), make.workspace(0, 1)
    tokens, position = history(3, make.device), make.position(0)
    storage = make.poisoned(3, 9)
    NormHead(
        x, None, head, tokens, position, Tile(4, 16), workspace, storage[1:2], choose=False
    ).launch()
    assert storage.isfinite().tolist() == [[False] * 9, [True] * 9, [False] * 9]
    assert (tokens == UNWRITTEN).all()
    assert position.item() == 0
    assert_reset(workspace)


def test_large_activations_in_fp16(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    x, norm = make.random(1, 96) * 15_000, Norm(make.norm(96).weight * 20, 1e-5)
    head, logits = make.weight(21, 96), make.poisoned(1, 21, dtype=torch.float32)
    tokens = history(2, make.device)
    tile, workspace = Tile(4, 64), make.workspace(0, 1)
    NormHead(x, norm, head, tokens, make.position(0), tile, workspace, logits).launch()
    assert_close(logits.half(), linear_reference(x, head, norm))
    assert tokens[0, 1] == logits.argmax()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "vocabulary", "hidden", "tile"),
    [
        (2, 65, 40, Tile(32, 32)),
        (7, 33, 77, Tile(64, 64)),
        (16, 97, 51, Tile(16, 64)),
        (17, 40, 51, Tile(32, 64)),
        (64, 33, 40, Tile(16, 32)),
    ],
)
def test_logits_of_a_batch_and_the_largest_of_them(
    batch: int,
    vocabulary: int,
    hidden: int,
    tile: Tile,
    dtype: torch.dtype,
    inputs,
    assert_close,
    assert_reset,
) -> None:
    make = inputs(dtype)
    x = make.random(batch, hidden)
    head = make.weight(vocabulary, hidden, scaled=vocabulary % 2 == 1, biased=batch == 2)
    tokens, position = history(9, make.device, batch), make.position(4)
    workspace = make.workspace(0, 1)
    logits = make.poisoned(batch, vocabulary, dtype=torch.float32)
    NormHead(x, None, head, tokens, position, tile, workspace, logits).launch()
    assert_close(logits.to(dtype), linear_reference(x, head))
    assert torch.equal(logits, logits.to(dtype).float())
    assert torch.equal(tokens[:, 5], logits.argmax(-1))
    assert position.item() == 5
    NormHead(x, None, head, tokens, position, tile, workspace).launch()
    assert torch.equal(tokens[:, 6], tokens[:, 5])
    assert (tokens[:, [0, 1, 2, 3, 4, 7, 8]] == UNWRITTEN).all()
    assert_reset(workspace)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_logits_of_a_batch_go_to_the_lowest_index(dtype: torch.dtype, inputs) -> None:
    make = inputs(dtype)
    x = torch.eye(3, 16, device=make.device).to(dtype)
    columns = torch.full((70, 3), -2.0, device=make.device)
    columns[[20, 5, 69], 0] = 3.0
    columns[[48, 33, 31], 1] = -1.5
    data = torch.cat((columns, torch.zeros(70, 13, device=make.device)), dim=1)
    tokens, position = history(2, make.device, 3), make.position(0)
    head = WeightMatrix(data.to(dtype))
    NormHead(x, None, head, tokens, position, Tile(16, 16), make.workspace(0, 1)).launch()
    assert tokens[:, 1].tolist() == [5, 31, 0]


def test_the_two_zeros_are_equal_in_a_batch(inputs) -> None:
    make = inputs(torch.float32)
    scale = torch.tensor([-1.0, -1.0] + [1.0] * 18, device=make.device)
    head = WeightMatrix(torch.zeros(20, 16, device=make.device), scale)
    tokens, position = history(2, make.device, 2), make.position(0)
    x, logits = make.random(2, 16).abs(), make.poisoned(2, 20)
    NormHead(x, None, head, tokens, position, Tile(16, 16), make.workspace(0, 1), logits).launch()
    assert torch.signbit(logits[:, :2]).all()
    assert tokens[:, 1].tolist() == [0, 0]


def test_a_batch_can_choose_the_last_row_among_infinities(inputs) -> None:
    make = inputs(torch.float32)
    bias = torch.full((37,), -float("inf"), device=make.device)
    bias[36] = -1e30
    head = WeightMatrix(torch.ones(37, 16, device=make.device), bias=bias)
    tokens, position = history(2, make.device, 2), make.position(0)
    NormHead(
        make.random(2, 16), None, head, tokens, position, Tile(32, 16), make.workspace(0, 1)
    ).launch()
    assert tokens[:, 1].tolist() == [36, 36]


@pytest.mark.parametrize("at", [-5, -1, 2, 7])
def test_outside_the_history_the_tokens_of_a_batch_stay_as_they_are(
    at: int, inputs, assert_reset
) -> None:
    make = inputs(torch.float32)
    guarded = torch.full((4, 3), UNWRITTEN, dtype=torch.int64, device=make.device)
    workspace = make.workspace(0, 1)
    position = make.position(at)
    x, head = make.random(2, 16), make.weight(20, 16)
    NormHead(x, None, head, guarded[1:3], position, Tile(16, 16), workspace).launch()
    assert (guarded == UNWRITTEN).all()
    assert position.item() == at + 1
    assert_reset(workspace)


def test_without_a_choice_only_logits_of_a_batch_are_written(inputs, assert_reset) -> None:
    make = inputs(torch.float32)
    x, head, workspace = make.random(2, 16), make.weight(20, 16), make.workspace(0, 1)
    tokens, position = history(3, make.device, 2), make.position(0)
    logits = make.poisoned(2, 20)
    NormHead(
        x, None, head, tokens, position, Tile(16, 16), workspace, logits, choose=False
    ).launch()
    assert not logits.isnan().any()
    assert (tokens == UNWRITTEN).all()
    assert position.item() == 0
    assert_reset(workspace)


CORRECT = {
    "x": torch.zeros(1, 8),
    "norm": Norm(torch.ones(8), 1e-6),
    "head": WeightMatrix(torch.zeros(6, 8)),
    "tokens": torch.zeros(1, 3, dtype=torch.int64),
    "position": torch.zeros(1, dtype=torch.int32),
    "tile": Tile(4, 8),
    "workspace": new_workspace(0, 1, "cpu"),
    "logits": torch.zeros(1, 6),
    "choose": True,
}


test_refuses = refuses(
    (NormHead(**(CORRECT | change)).launch, complaint)
    for change, complaint in [
        ({"x": torch.zeros(8)}, r"x \[8\]: must be \[1 to 64, 8\]"),
        ({"x": torch.zeros(65, 8)}, "1 to 64"),
        ({"x": torch.zeros(1, 9)}, r"x .*\[1, 8\]"),
        ({"x": torch.zeros(1, 8).double()}, "x is torch.float64"),
        ({"x": torch.zeros(1, 8, device="meta")}, "x .* on meta"),
        ({"norm": Norm(torch.ones(6), 1e-6)}, r"norm weight .*\[8\]"),
        ({"norm": Norm(torch.ones(8).int(), 1e-6)}, "norm weight is torch.int32"),
        ({"norm": Norm(torch.ones(8, device="meta"), 1e-6)}, "norm weight .* on meta"),
        ({"tokens": torch.zeros(3, dtype=torch.int64)}, r"tokens \[3\]: .*capacity \+ 1\]"),
        ({"tokens": torch.zeros(2, 3, dtype=torch.int64)}, r"tokens .*\[1, 3\]"),
        ({"tokens": torch.zeros(1, 0, dtype=torch.int64)}, r"tokens \[1, 0\]"),
        ({"tokens": torch.zeros(1, 3, dtype=torch.int32)}, "tokens is torch.int32"),
        ({"tokens": torch.zeros(3, 2, dtype=torch.int64).T[:1]}, "tokens has strides"),
        ({"tokens": torch.zeros(1, 3, dtype=torch.int64, device="meta")}, "tokens .* on meta"),
        ({"position": torch.zeros(1, dtype=torch.int64)}, "position is torch.int64"),
        ({"position": torch.zeros(2, dtype=torch.int32)}, r"position .*\[1\]"),
        ({"position": torch.zeros(1, dtype=torch.int32, device="meta")}, "position .* on meta"),
        ({"logits": torch.zeros(1, 6).half()}, "logits is torch.float16"),
        ({"logits": torch.zeros(1, 5)}, r"logits .*\[1, 6\]"),
        ({"logits": torch.zeros(6, 2).T[:1]}, "logits has strides"),
        ({"logits": torch.zeros(1, 6, device="meta")}, "logits .* on meta"),
        ({"logits": None, "choose": False}, "neither logits nor a choice"),
        ({"tile": Tile(4, 8, splits=2)}, "tile of 2 splits"),
        (
            {
                "x": torch.zeros(2, 8),
                "norm": None,
                "tokens": torch.zeros(2, 3, dtype=torch.int64),
                "logits": None,
                "tile": Tile(8, 16),
            },
            "at least 16 x 16",
        ),
        (
            {
                "x": torch.zeros(2, 8),
                "tokens": torch.zeros(2, 3, dtype=torch.int64),
                "logits": None,
                "tile": Tile(16, 16),
            },
            "a norm of 2 tokens",
        ),
        ({"workspace": new_workspace(0, 0, "cpu")}, "needs 0 and 1"),
        ({"workspace": new_workspace(0, 1, "meta")}, "workspace on meta"),
    ]
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tile", [Tile(4, 2048, 4, 2), Tile(2, 512, 2, 9), Tile(16, 1024, 8)])
@pytest.mark.parametrize("hidden", [4096, 3001])
def test_many_programs_choose_the_same_token(
    hidden: int, tile: Tile, dtype: torch.dtype, inputs, assert_close, assert_reset
) -> None:
    make = inputs(dtype)
    x, norm, head = make.random(1, hidden), make.norm(hidden), make.weight(50_001, hidden)
    tokens, position = history(31, make.device), make.position(0)
    workspace, logits = make.workspace(0, 1), make.poisoned(1, 50_001, dtype=torch.float32)
    for _ in range(30):
        NormHead(x, norm, head, tokens, position, tile, workspace, logits).launch()
    assert_close(logits.to(dtype), linear_reference(x, head, norm))
    assert (tokens[0, 1:] == logits.argmax()).all()
    assert position.item() == 30
    assert_reset(workspace)


@pytest.mark.gpu
def test_rows_beyond_32_bit_offsets_are_read() -> None:
    rows, columns = 2**19 + 3, 4096
    data = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    data[-1] = 1.0
    x = torch.ones(1, columns, dtype=torch.bfloat16, device="cuda")
    tokens = history(2, "cuda")
    position = torch.zeros(1, dtype=torch.int32, device="cuda")
    logits = torch.full((1, rows), float("nan"), device="cuda")
    workspace = new_workspace(0, 1, "cuda")
    NormHead(
        x, None, WeightMatrix(data), tokens, position, Tile(4, 4096), workspace, logits
    ).launch()
    assert tokens[0, 1].item() == rows - 1
    assert logits[0, -1].item() == columns
    assert logits.count_nonzero().item() == 1
