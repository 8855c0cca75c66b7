"""The choice among the heads of several ranks, whose memory is in one process; PyTorch plays the
ranks that do not run."""

import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import MAX_BATCH, NO_KEY, new_workspace
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS, AllReduceChoice
from decodescope.kernels.ops.norm_head import NormHead
from tests.helpers.exchanges import exchanges_of, play_push, pushed
from tests.helpers.kernel_inputs import at, random
from tests.helpers.refusals import refuses

COLUMNS, POSITION, CAPACITY = 32, 2, 4


def keys_of(x: torch.Tensor, head: torch.Tensor, first: int) -> torch.Tensor:
    """The keys that a rank's `NormHead` leaves, [MAX_BATCH]."""
    batch, device = len(x), str(x.device)
    workspace = new_workspace(0, 1, device)
    tokens = torch.full((batch, CAPACITY + 1), -1, device=device)
    position = at(POSITION, device)
    tile = Tile(4, 32) if batch == 1 else Tile(16, 16)
    memory = WeightMatrix(head), tokens, position, tile, workspace
    NormHead(x, None, *memory, first=first, finishes=False).launch()
    assert (tokens == -1).all()
    assert position.item() == POSITION
    assert not workspace.counters.any()
    return workspace.keys


def as_words(keys: torch.Tensor) -> torch.Tensor:
    """Keys as they are sent: upper halves first."""
    return torch.stack((keys >> 32, keys), dim=1).to(torch.int32)


@pytest.mark.parametrize(
    ("ranks", "batch", "sizes"), [(2, 1, (7, 6)), (3, 5, (9, 1, 4)), (4, 64, (5, 5, 5, 5))]
)
def test_the_tokens_are_those_of_one_head(
    ranks: int, batch: int, sizes: tuple[int, ...], device: str
) -> None:
    exchanges = exchanges_of(ranks, CHOICE_WORDS, device)
    for launch in range(4):
        x = random(batch, COLUMNS, seed=launch, device=device)
        # Few numbers, so that rows of several ranks are equally good.
        x, head = x.round(), random(sum(sizes), COLUMNS, seed=launch, device=device).sign()
        head[-1] = head[0]
        firsts = [sum(sizes[:rank]) for rank in range(ranks)]
        keys = [
            keys_of(x, head[first : first + size].contiguous(), first)
            for first, size in zip(firsts, sizes, strict=True)
        ]
        sent = [as_words(one) for one in keys]
        for rank in range(ranks):
            for source in set(range(ranks)) - {rank}:
                play_push([exchanges[rank]], source, launch, sent[source])
            tokens = torch.full((batch, CAPACITY + 1), -1, device=device)
            position = at(POSITION, device)
            AllReduceChoice(keys[rank], tokens, position, exchanges[rank]).launch()
            expected = torch.full_like(tokens, -1)
            expected[:, POSITION + 1] = (x @ head.T).argmax(-1)
            assert torch.equal(tokens, expected)
            assert position.item() == POSITION + 1
            assert (keys[rank] == NO_KEY).all()
            for other in exchanges[:rank]:
                found = pushed(other, rank, launch, 2 * batch)
                assert torch.equal(found, sent[rank].flatten()[: 2 * batch])


def test_past_the_cache_no_token_is_written(device: str) -> None:
    # Both stay alive: the kernel writes to the other's memory.
    exchange, _other = exchanges_of(2, CHOICE_WORDS, device)
    keys = torch.full((MAX_BATCH,), 5, device=device)
    play_push([exchange], 1, 0, torch.zeros(CHOICE_WORDS, dtype=torch.int32, device=device))
    tokens, position = torch.full((3, 4), -1, device=device), at(3, device)
    AllReduceChoice(keys, tokens, position, exchange).launch()
    assert (tokens == -1).all()
    assert position.item() == 4


def test_a_missing_rank_is_named(device: str) -> None:
    exchange, _other = exchanges_of(2, CHOICE_WORDS, device, patience_ns=200)
    keys = torch.full((MAX_BATCH,), 5, device=device)
    tokens, position = torch.full((3, 4), -1, device=device), at(1, device)
    AllReduceChoice(keys, tokens, position, exchange).launch()
    assert position.item() == 2
    assert exchange.missing.tolist() == [2]


KEYS, POSITION_0 = torch.zeros(MAX_BATCH, dtype=torch.int64), at(0, "cpu")
EXCHANGE = exchanges_of(2, CHOICE_WORDS, "cpu")[0]
TOKENS = torch.zeros(1, 4, dtype=torch.int64)

test_bad_operands_are_refused = refuses(
    (AllReduceChoice(keys, tokens, POSITION_0, exchange).launch, complaint)
    for keys, tokens, exchange, complaint in [
        (KEYS[:1], TOKENS, EXCHANGE, r"keys .*\[64\]"),
        (KEYS, TOKENS.int(), EXCHANGE, "tokens is torch.int32"),
        (KEYS, torch.zeros(65, 4, dtype=torch.int64), EXCHANGE, r"tokens \[65, 4\]"),
        (KEYS, TOKENS, exchanges_of(2, 200, "cpu")[0], "exchange of 64 pieces"),
    ]
)
