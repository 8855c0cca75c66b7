"""Two ranks of one process that run at the same time, on a GPU each or on streams of one."""

from collections.abc import Sequence
from typing import Protocol

import torch

from decodescope.kernels.host.exchange import MARK, SLOTS, Exchange, new_exchange, new_slots
from decodescope.variants.parallel.shared_slots import WAITING_NS


class StreamRank(Protocol):
    """A rank that counts its launches, and what is wrong in their results."""

    exchange: Exchange
    stream: torch.cuda.Stream
    launches: torch.Tensor
    wrong: torch.Tensor

    def launch(self, late: bool) -> None:
        """One launch on the current stream; it comes `late` if the other rank's does not."""


def two_exchanges(words: int) -> list[Exchange]:
    """The memory of two ranks, on the first two GPUs or on the only one."""
    devices = [torch.device("cuda", rank % torch.cuda.device_count()) for rank in range(2)]
    slots = [new_slots(words, 2, device) for device in devices]
    # PyTorch lets a GPU store in another's memory when it first copies there.
    for source, target in (slots, reversed(slots)):
        target.copy_(source)
    peers = [one.data_ptr() for one in slots]
    return [new_exchange(rank, one, peers, WAITING_NS) for rank, one in enumerate(slots)]


def synchronize(exchanges: Sequence[Exchange]) -> None:
    for exchange in exchanges:
        torch.cuda.synchronize(exchange.slots.device)


def _replay_alone(ranks: Sequence[StreamRank], graphs: Sequence[torch.cuda.CUDAGraph]) -> None:
    """Replay each graph once without the other, and undo what it did. At its first launch CUDA
    uploads a graph, which may wait for kernels that run: a rank's kernels then wait in vain."""
    exchanges = [rank.exchange for rank in ranks]
    state = [tensor for rank in ranks for tensor in (rank.launches, rank.wrong)]
    for exchange in exchanges:
        state += [exchange.slots, exchange.turns, exchange.missing, exchange.patience_ns]
    before = [tensor.clone() for tensor in state]
    for exchange in exchanges:
        exchange.patience_ns.zero_()
    for rank, graph in zip(ranks, graphs, strict=True):
        with torch.cuda.stream(rank.stream):
            graph.replay()
        synchronize(exchanges)
    for tensor, value in zip(state, before, strict=True):
        tensor.copy_(value)
    synchronize(exchanges)


def assert_replays_agree(ranks: Sequence[StreamRank], launches: int, in_graph: int) -> None:
    """Replay graphs of `in_graph` launches of two ranks, which have launched once, until there are
    `launches` more: no result is wrong, and the slots are as a next launch needs them."""
    graphs = []
    for rank in ranks:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.stream(rank.stream), torch.cuda.graph(graphs[-1], stream=rank.stream):
            for index in range(in_graph):
                rank.launch(late=index % 3 == rank.exchange.rank)
    _replay_alone(ranks, graphs)
    for _ in range(launches // in_graph):
        for rank, graph in zip(ranks, graphs, strict=True):
            with torch.cuda.stream(rank.stream):
                graph.replay()
    synchronize([rank.exchange for rank in ranks])
    done = 1 + launches // in_graph * in_graph
    assert [rank.launches.item() for rank in ranks] == [done, done]
    # A rank that gave up has NaN from then on.
    missing = [rank.exchange.missing.item() for rank in ranks]
    wrong = [rank.wrong.item() for rank in ranks]
    assert (missing, wrong) == ([0, 0], [0, 0]), f"gave up on ranks {missing}; wrong words {wrong}"
    for rank in ranks:
        assert (rank.exchange.turns == done % SLOTS).all()
        empty = [slot for slot in range(SLOTS) if slot != (done - 1) % SLOTS]
        assert (rank.exchange.slots[empty] == MARK).all()
