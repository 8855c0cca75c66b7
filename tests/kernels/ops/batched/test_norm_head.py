import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.batched.norm_head import norm_head
from decodescope.kernels.ops.norm_head import norm_head_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def history(batch: int, length: int, at: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.full((batch, length), -7, dtype=torch.int64, device=device)
    return tokens, torch.tensor([at], dtype=torch.int32, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "vocabulary", "hidden", "tile"),
    [
        (1, 50, 32, Tile(16, 32)),
        (2, 65, 40, Tile(32, 32)),
        (7, 33, 77, Tile(64, 64)),
        (16, 97, 51, Tile(16, 64)),
    ],
)
def test_logits_and_the_largest_of_them(
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
    x, norm = make.random(batch, hidden), make.norm(hidden)
    head = make.weight(vocabulary, hidden, scaled=vocabulary % 2 == 1, biased=batch == 2)
    tokens, position = history(batch, 9, 4, make.device)
    workspace = make.workspace(0, 1)
    logits = make.poisoned(batch, vocabulary, dtype=torch.float32)
    norm_head(x, norm, head, tokens, position, tile, workspace, logits)
    assert_close(logits.to(dtype), norm_head_reference(x, norm, head))
    assert torch.equal(logits, logits.to(dtype).float())
    assert torch.equal(tokens[:, 5], logits.argmax(-1))
    assert position.item() == 5
    norm_head(x, norm, head, tokens, position, tile, workspace)
    assert torch.equal(tokens[:, 6], tokens[:, 5])
    assert (tokens[:, [0, 1, 2, 3, 4, 7, 8]] == -7).all()
    assert_reset(workspace)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_logits_go_to_the_lowest_index(dtype: torch.dtype, inputs) -> None:
    make = inputs(dtype)
    x = torch.eye(3, 16, device=make.device).to(dtype)
    columns = torch.full((70, 3), -2.0, device=make.device)
    columns[[20, 5, 69], 0] = 3.0
    columns[[48, 33, 31], 1] = -1.5
    data = torch.cat((columns, torch.zeros(70, 13, device=make.device)), dim=1)
    tokens, position = history(3, 2, 0, make.device)
    head = WeightMatrix(data.to(dtype))
    norm_head(x, None, head, tokens, position, Tile(16, 16), make.workspace(0, 1))
    assert tokens[:, 1].tolist() == [5, 31, 0]


def test_the_two_zeros_are_equal(inputs) -> None:
    make = inputs(torch.float32)
    scale = torch.tensor([-1.0, -1.0] + [1.0] * 18, device=make.device)
    head = WeightMatrix(torch.zeros(20, 16, device=make.device), scale)
    tokens, position = history(2, 2, 0, make.device)
    x, logits = make.random(2, 16).abs(), make.poisoned(2, 20)
    norm_head(x, None, head, tokens, position, Tile(16, 16), make.workspace(0, 1), logits)
    assert torch.signbit(logits[:, :2]).all()
    assert tokens[:, 1].tolist() == [0, 0]


def test_the_last_row_and_infinities_are_chosen(inputs) -> None:
    make = inputs(torch.float32)
    bias = torch.full((37,), -float("inf"), device=make.device)
    bias[36] = -1e30
    head = WeightMatrix(torch.ones(37, 16, device=make.device), bias=bias)
    tokens, position = history(2, 2, 0, make.device)
    norm_head(make.random(2, 16), None, head, tokens, position, Tile(32, 16), make.workspace(0, 1))
    assert tokens[:, 1].tolist() == [36, 36]


@pytest.mark.parametrize("at", [-5, -1, 2, 7])
def test_outside_the_history_it_stays_as_it_is(at: int, inputs, assert_reset) -> None:
    make = inputs(torch.float32)
    guarded = torch.full((4, 3), -7, dtype=torch.int64, device=make.device)
    workspace = make.workspace(0, 1)
    position = make.position(at)
    x, head = make.random(2, 16), make.weight(20, 16)
    norm_head(x, None, head, guarded[1:3], position, Tile(16, 16), workspace)
    assert (guarded == -7).all()
    assert position.item() == at + 1
    assert_reset(workspace)


def test_without_a_choice_only_logits_are_written(inputs, assert_reset) -> None:
    make = inputs(torch.float32)
    x, head, workspace = make.random(2, 16), make.weight(20, 16), make.workspace(0, 1)
    tokens, position = history(2, 3, 0, make.device)
    logits = make.poisoned(2, 20)
    norm_head(x, None, head, tokens, position, Tile(16, 16), workspace, logits, choose=False)
    assert not logits.isnan().any()
    assert (tokens == -7).all()
    assert position.item() == 0
    assert_reset(workspace)


@pytest.mark.parametrize(
    ("tile", "counters", "complaint"),
    [(Tile(8, 16), 1, "at least 16 x 16"), (Tile(16, 16), 0, "needs 0 and 1")],
)
def test_refuses_what_it_cannot_run(tile: Tile, counters: int, complaint: str, inputs) -> None:
    make = inputs(torch.float32)
    tokens, position = history(2, 3, 0, make.device)
    x, head, workspace = make.random(2, 16), make.weight(20, 16), make.workspace(0, counters)
    with pytest.raises(ValueError, match=complaint):
        norm_head(x, None, head, tokens, position, tile, workspace)
