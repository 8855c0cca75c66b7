"""How a configuration reaches processes: through a socket of our own, or through dynolog."""

import time
from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass

from decodescope.attach.door import Closeable
from decodescope.attach.kineto.daemon_socket import DaemonSocket, Datagram
from decodescope.attach.kineto.messages import Message, encode_config, encode_count
from decodescope.attach.kineto.timing import Timing

_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Delivery:
    """Who has the configuration of a window that begins at `start_ms` of the wall clock; `busy` are
    those that asked, and whose profiler runs already."""

    start_ms: int
    delivered: frozenset[int]
    busy: frozenset[int] = frozenset()


class ConfigSource(Closeable):
    """Use it with `with`: while it is open, processes have someone to ask."""

    @abstractmethod
    def deliver(
        self, pids: Collection[int], text_at: Callable[[int], str], check: Callable[[], None]
    ) -> Delivery:
        """Give the processes `pids` the configuration `text_at(start_ms)`, and nothing to others.
        `check` is called several times a second and may raise."""

    @abstractmethod
    def serve(self, seconds: float) -> frozenset[int]:
        """Wait, and give no process a configuration. Returns early with those processes, of the
        ones that had one, which asked for another: no profiler runs in them."""


class OwnDaemon(ConfigSource):
    """The daemon that processes ask is this process.

    Raises:
        OSError: the socket cannot be bound; `EADDRINUSE` if a process has it.
    """

    def __init__(self, address: bytes | str, timing: Timing) -> None:
        self._socket, self._timing = DaemonSocket(address), timing
        self._pids = frozenset[int]()

    def deliver(
        self, pids: Collection[int], text_at: Callable[[int], str], check: Callable[[], None]
    ) -> Delivery:
        """As in `ConfigSource`. One process begins as soon as it can; several begin together, when
        each of them has asked once."""
        timing, began_s = self._timing, time.time()
        asked_s = began_s + timing.poll_s
        together_s = None if len(pids) == 1 else asked_s + timing.lead_s
        last_s = began_s + timing.silent_s if together_s is None else asked_s
        self._pids, start_ms = frozenset(pids), 0
        waiting, busy = set(pids), set[int]()
        while waiting and time.time() < last_s:
            check()
            datagram = self._socket.receive(_TICK_S)
            if datagram is None:
                continue
            pid, message = datagram.sender_pid, datagram.message
            if pid in waiting and message is Message.BUSY_REQUEST:
                busy.add(pid)
            if pid not in waiting or message is not Message.REQUEST:
                self._answer_nothing(datagram)
            else:
                start_ms = int(1000 * (together_s or time.time() + timing.lead_s))
                if self._socket.answer(datagram, encode_config(text_at(start_ms))):
                    waiting.remove(pid)
        return Delivery(start_ms, frozenset(pids) - waiting, frozenset(busy & waiting))

    def serve(self, seconds: float) -> frozenset[int]:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            datagram = self._socket.receive(left_s)
            if datagram is None:
                continue
            pid = datagram.sender_pid
            if datagram.message is Message.REQUEST and pid in self._pids:
                # A process takes the oldest answer that it has, without a look at what it asked.
                # One that an answer reached after 90 ms is an answer behind from then on, and late
                # for each window. A request without an answer brings it up to date.
                return frozenset({pid})
            self._answer_nothing(datagram)
        return frozenset()

    def _answer_nothing(self, datagram: Datagram) -> None:
        """Answer a message without a window; a malformed one gets no answer."""
        if datagram.message is Message.REGISTRATION:
            self._socket.answer(datagram, encode_count(1))
        elif datagram.message is not None:
            self._socket.answer(datagram, encode_config(""))

    def close(self) -> None:
        self._socket.close()
