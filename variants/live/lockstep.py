"""One clock and one app for the live loops of several ranks: those of rank 0.

Each rank runs the same loop. All that makes loops differ is what time it is and what the app says,
so both come from rank 0, at the same places of the loop. Each is one broadcast of a number over
gloo, and the loop asks for few in a batch of steps.
"""

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns

import torch
import torch.distributed as dist

from decodescope.analyzer.protocol.messages import AppMessage, Quit, Stats, WorkerMessage
from decodescope.variants.live.channel import Channel, ChannelClosed
from decodescope.variants.parallel.exchange import from_rank_0
from decodescope.variants.parallel.ranks import Ranks


class RankClock:
    """The clock of rank 0, in ns."""

    def __init__(self, ranks: Ranks, clock_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._leads = not ranks.rank
        self._clock_ns = clock_ns

    def __call__(self) -> int:
        return _number(self._clock_ns() if self._leads else 0)


class RankChannel:
    """The channel to the app on rank 0, whose messages all ranks get; the others (`channel` None)
    send nothing. That the app is gone reaches them as `Quit`."""

    def __init__(self, channel: Channel | None, ranks: Ranks) -> None:
        self._channel = channel
        self._ranks = ranks
        self._closed = False

    @property
    def dropped(self) -> int:
        return 0 if self._channel is None else self._channel.dropped

    def send(self, message: WorkerMessage) -> None:
        try:
            if self._channel is not None:
                self._channel.send(message)
        except ChannelClosed:
            self._closed = True

    def send_stats(self, stats: Stats) -> bool:
        try:
            return self._channel is None or self._channel.send_stats(stats)
        except ChannelClosed:
            self._closed = True
            return False

    def receive(self) -> list[AppMessage]:
        """The messages that have arrived on rank 0; never waits for the app."""
        return self._shared(lambda channel: channel.receive())

    def wait(self) -> list[AppMessage]:
        """Sleep until the app sends a message. The ranks hear of each other meanwhile, so that none
        waits for another for too long."""
        while not (messages := self._shared(lambda channel: channel.wait_once())):
            pass
        return messages

    def _shared(self, read: Callable[[Channel], list[AppMessage]]) -> list[AppMessage]:
        messages: list[AppMessage] = []
        if self._channel is not None:
            messages = [Quit()]
            if not self._closed:
                with suppress(ChannelClosed):
                    messages = read(self._channel)
        return from_rank_0(messages, self._ranks) if _number(len(messages)) else []


def _number(value: int) -> int:
    """The value of rank 0."""
    number = torch.tensor(value)
    dist.broadcast(number, src=0)
    return int(number)
