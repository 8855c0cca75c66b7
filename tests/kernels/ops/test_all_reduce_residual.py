"""The all-reduce of several ranks, whose memory is in one process.

In the interpreter nothing runs at the same time, so PyTorch plays the other ranks: it stores their
words before a launch, or a thread does while the kernel waits. `gpu` tests run the ranks on streams
of one GPU.
"""

import threading

import pytest
import torch

from decodescope.kernels.host.exchange import MARK, SLOTS, Exchange, division_of
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from tests.helpers.exchanges import (
    as_sent,
    exchanges_of,
    picked_up_in_two_rounds,
    play_push,
    pushed,
)
from tests.helpers.kernel_inputs import LIMITS, poisoned, random, relative_error
from tests.helpers.refusals import refuses


def message(rank: int, launch: int, shape: tuple[int, int], device: str) -> torch.Tensor:
    """A rank's partial sums: other numbers in each launch, some of them zeros of both signs."""
    x = random(*shape, seed=100 * launch + rank, device=device)
    x.view(-1)[rank::7] = -0.0
    x.view(-1)[rank + 1 :: 11] = 0.0
    return x


def summed(messages: list[torch.Tensor], residual: torch.Tensor | None) -> torch.Tensor:
    """The sum in the order of the ranks and then the residual, in float32."""
    total = torch.zeros_like(messages[0])
    for one in messages:
        total = total + one + 0.0
    return total if residual is None else total + residual.float()


def only_empty(exchange: Exchange, launch: int) -> bool:
    """Whether all slots but that of `launch` are empty."""
    others = [slot for slot in range(SLOTS) if slot != launch % SLOTS]
    return bool((exchange.slots[others] == MARK).all())


@pytest.mark.parametrize(
    ("ranks", "shape", "dtype", "adds"),
    [
        *((2, (3, 99), dtype, adds) for dtype in LIMITS for adds in (True, False)),
        (2, (1, 96), torch.bfloat16, True),
        (3, (1, 7), torch.float32, False),
        (4, (5, 130), torch.float32, True),
        (8, (1, 33), torch.float32, True),
        (2, (64, 129), torch.bfloat16, True),
    ],
)
def test_all_ranks_get_the_sum_with_the_same_bits(
    ranks: int,
    shape: tuple[int, int],
    dtype: torch.dtype,
    adds: bool,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = shape[0] * shape[1]
    if shape[0] == 64:
        picked_up_in_two_rounds(words, monkeypatch)
    exchanges = exchanges_of(ranks, words, device)
    start = random(*shape, seed=9, dtype=dtype, device=device) * 4
    for launch in range(4):
        messages = [message(rank, launch, shape, device) for rank in range(ranks)]
        residuals = [start.clone() if adds else poisoned(start) for _ in range(ranks)]
        # The ranks that come first wait for the words of the others, which come in advance.
        for rank in sorted(range(ranks), key=lambda rank: (rank + launch) % ranks):
            for source in range(ranks):
                if source != rank:
                    play_push([exchanges[rank]], source, launch, messages[source])
            AllReduceResidual(messages[rank], residuals[rank], exchanges[rank], adds).launch()
            for other in exchanges:
                if other.rank != rank:
                    found = pushed(other, rank, launch, words)
                    assert torch.equal(found, as_sent(messages[rank]))
        assert all(only_empty(exchange, launch) for exchange in exchanges)
        expected = summed(messages, start if adds else None)
        assert relative_error(residuals[0], expected) < LIMITS[dtype]
        if dtype == torch.float32:
            assert torch.equal(residuals[0], expected)
        assert all(torch.equal(residuals[0], other) for other in residuals)
        assert not any(exchange.missing.item() for exchange in exchanges)


@pytest.mark.parametrize("late", [0, 1])
def test_a_kernel_waits_for_words_that_come_late(late: int, device: str) -> None:
    if device == "cuda":
        pytest.skip("the GPU's tests have ranks that run at the same time")
    exchanges = exchanges_of(2, 40, device)
    messages = [message(rank, 0, (1, 40), device) for rank in range(2)]
    residual = poisoned(messages[0])
    first = 1 - late
    timer = threading.Timer(0.2, play_push, (exchanges, late, 0, messages[late]))
    timer.start()
    AllReduceResidual(messages[first], residual, exchanges[first], adds=False).launch()
    timer.join()
    assert torch.equal(residual, summed(messages, None))


def test_half_of_a_message_is_not_taken_for_the_whole(device: str) -> None:
    exchanges = exchanges_of(2, 40, device, patience_ns=200)
    messages = [message(rank, 0, (1, 40), device) for rank in range(2)]
    play_push(exchanges, 1, 0, messages[1])
    exchanges[0].slots[0, 1].view(-1)[17] = MARK
    residual = poisoned(messages[0])
    AllReduceResidual(messages[0], residual, exchanges[0], adds=False).launch()
    assert residual.isnan().all()
    assert exchanges[0].missing.item() == 2


def test_a_rank_that_does_not_answer_is_named_and_never_waited_for_again(device: str) -> None:
    exchanges = exchanges_of(3, 40, device, patience_ns=200)
    messages = [message(rank, 0, (1, 40), device) for rank in range(3)]
    play_push(exchanges, 2, 0, messages[2])
    operation = AllReduceResidual(messages[0], messages[0].clone(), exchanges[0])
    operation.launch()
    assert operation.residual.isnan().all()
    assert exchanges[0].missing.tolist() == [2]
    slots = [exchange.slots.clone() for exchange in exchanges]
    exchanges[0].patience_ns.fill_(2**62)
    operation.launch()
    assert operation.residual.isnan().all()
    # What it would send now belongs to another launch.
    assert all(
        torch.equal(exchange.slots, before)
        for exchange, before in zip(exchanges, slots, strict=True)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-45, -1e-45])
def test_every_number_arrives(value: float, device: str) -> None:
    exchanges = exchanges_of(2, 8, device)
    mine, other = torch.zeros(1, 8, device=device), torch.full((1, 8), value, device=device)
    play_push(exchanges, 1, 0, other)
    residual = poisoned(mine)
    AllReduceResidual(mine, residual, exchanges[0], adds=False).launch()
    assert torch.equal(residual.isnan(), other.isnan())
    assert torch.equal(residual.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("words", [1, 4, 128, 4096, 4097, 64 * 4096, 64 * 8192 + 1])
def test_a_division_covers_the_message_with_programs_that_fit_a_gpu(words: int) -> None:
    division = division_of(words)
    assert division.pieces * 4 >= words
    assert (division.pieces - division.programs * division.lanes) * 4 < words
    assert division.programs <= 128
    assert 32 <= division.lanes <= 512
    assert division_of(division.pieces * 4) == division


X = torch.zeros(1, 8)
EXCHANGE = exchanges_of(2, 8, "cpu")[0]

test_bad_operands_are_refused = refuses(
    (AllReduceResidual(x, residual, exchange).launch, complaint)
    for x, residual, exchange, complaint in [
        (X.half(), X.half(), EXCHANGE, "x is torch.float16"),
        (X, torch.zeros(1, 7), EXCHANGE, r"residual .*\[1, 7\]"),
        (X, torch.zeros(1, 8, dtype=torch.int32), EXCHANGE, "residual is torch.int32"),
        (X, X, EXCHANGE, "residual shares memory with x"),
        (torch.zeros(1, 800), torch.ones(1, 800), EXCHANGE, "exchange of 32 pieces"),
    ]
)
