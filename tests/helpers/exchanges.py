"""The memory of several ranks in one process, and ranks that PyTorch plays."""

import pytest
import torch
import torch.distributed as dist

from decodescope.kernels.host import exchange as host_exchange
from decodescope.kernels.host.exchange import (
    MARK,
    PIECE_WORDS,
    SLOTS,
    Exchange,
    new_exchange,
    new_slots,
)
from decodescope.variants.parallel import sums
from decodescope.variants.parallel.shared_slots import SharedExchange

PATIENCE_NS = 10**10


def exchanges_of(
    ranks: int, words: int, device: str, patience_ns: int = PATIENCE_NS
) -> list[Exchange]:
    """The memory of each of `ranks` for messages of so many words."""
    slots = [new_slots(words, ranks, device) for _ in range(ranks)]
    peers = [one.data_ptr() for one in slots]
    return [new_exchange(rank, one, peers, patience_ns) for rank, one in enumerate(slots)]


def picked_up_in_two_rounds(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a message of so many words, few enough for the interpreter, take two rounds, of which the
    second ends early."""
    monkeypatch.setattr(host_exchange, "_MOST_PROGRAMS", 4)
    division = host_exchange.division_of(words)
    assert division.rounds == 2
    assert division.pieces * PIECE_WORDS > words


def share_through(slots: dict[int, list[torch.Tensor]], rank: int) -> None:
    """Let the sums of this process's rank go through `slots`: those of each rank, in memory that
    they share, for each number of words. For the rest of the process."""

    def shared(sizes: tuple[int, ...], *_: object) -> list[SharedExchange]:
        made = []
        # Of a step before, the last words are still there.
        dist.barrier()
        for words in sizes:
            slots[words][rank].fill_(MARK)
        dist.barrier()
        for of_all in (slots[words] for words in sizes):
            peers = [one.data_ptr() for one in of_all]
            exchange = new_exchange(rank, of_all[rank], peers, PATIENCE_NS)
            made.append(SharedExchange(exchange, ()))
        return made

    sums.shared_exchanges = shared  # type: ignore[assignment]


def shared_slots(sizes: set[int]) -> dict[int, list[torch.Tensor]]:
    """Slots of two ranks in memory that processes share, for each number of words."""
    return {
        words: [new_slots(words, 2, "cpu").share_memory_() for _ in range(2)] for words in sizes
    }


def as_sent(words: torch.Tensor) -> torch.Tensor:
    """The int32 words of a message as ranks send them."""
    bits = words.flatten().view(torch.int32)
    return torch.where(bits == MARK, 0, bits)


def play_push(exchanges: list[Exchange], source: int, launch: int, words: torch.Tensor) -> None:
    """Store the words of rank `source` in the slots of the others; the first launch is 0."""
    for exchange in exchanges:
        if exchange.rank != source:
            slot = exchange.slots[launch % SLOTS, source].flatten()
            # A word is stored once: a kernel may look at any time.
            slot[words.numel() :] = 0
            slot[: words.numel()] = as_sent(words)


def pushed(exchange: Exchange, source: int, launch: int, words: int) -> torch.Tensor:
    """The words of rank `source` in the slots of a rank."""
    return exchange.slots[launch % SLOTS, source].flatten()[:words]


def as_pushed(slots: torch.Tensor, source: int, launch: int, words: torch.Tensor) -> torch.Tensor:
    """What another rank's `slots` hold when a kernel of rank `source` has sent `words`, and zeros
    up to the end of the last piece."""
    after = slots.clone()
    slot = after[launch % SLOTS, source].view(-1, PIECE_WORDS)
    slot[: -(-words.numel() // PIECE_WORDS)] = 0
    slot.view(-1)[: words.numel()] = as_sent(words)
    return after
