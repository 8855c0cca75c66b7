"""How a configuration reaches processes: through a socket of our own, or through dynolog.

dynolog listens on TCP port 1778; a message is its length (`<i`) and JSON, and so is the answer.
Source: facebookincubator/dynolog `SimpleJsonServerInl.h`, `gputrace.rs`.
"""

import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from decodescope.analyzer.errors import DecodescopeError
from decodescope.attach.deadline import conversation
from decodescope.attach.door import Closeable
from decodescope.attach.kineto.daemon_socket import (
    DaemonSocket,
    Datagram,
    Message,
    encode_config,
    encode_count,
)
from decodescope.attach.kineto.window_config import Timing

DYNOLOG_PORT = 1778
_TICK_S = 0.05
_LENGTH = struct.Struct("<i")
_MAX_ANSWER_BYTES = 1 << 20
_TIMEOUT_S = 2.0
_Pid = Annotated[int, Meta(ge=0)]


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


class _Answer(Struct, rename="camel"):
    activity_profilers_triggered: tuple[_Pid, ...]
    processes_matched: tuple[_Pid, ...] = ()


class Dynolog(ConfigSource):
    """The dynolog of this machine; `jobs` has the job id of each process.

    Raises:
        DecodescopeError: nothing that speaks dynolog's protocol answers at `port`.
    """

    def __init__(self, jobs: dict[int, int], port: int, timing: Timing) -> None:
        self._jobs, self._port, self._timing = jobs, port, timing
        self._ask({"fn": "getVersion"})

    def deliver(
        self, pids: Collection[int], text_at: Callable[[int], str], check: Callable[[], None]
    ) -> Delivery:
        """As in `ConfigSource`; the window begins when each process has asked dynolog once."""
        check()
        start_ms = int(1000 * (time.time() + self._timing.poll_s + self._timing.lead_s))
        triggered, matched = set[int](), set[int]()
        for job in sorted({self._jobs[pid] for pid in pids}):
            request = {
                "fn": "setKinetOnDemandRequest",
                "config": text_at(start_ms),
                "job_id": job,
                "pids": sorted(pid for pid in pids if self._jobs[pid] == job),
                "process_limit": len(pids),
            }
            try:
                answer = msgspec.json.decode(self._ask(request), type=_Answer)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise DecodescopeError(
                    f"dynolog at port {self._port}: refused the window, or is too old to open one; "
                    "look at its log"
                ) from error
            triggered.update(answer.activity_profilers_triggered)
            matched.update(answer.processes_matched)
        wanted = frozenset(pids)
        return Delivery(start_ms, wanted & triggered, (wanted & matched) - triggered)

    def serve(self, seconds: float) -> frozenset[int]:
        """As in `ConfigSource`; who asks dynolog is not known."""
        time.sleep(seconds)
        return frozenset()

    def close(self) -> None:
        """Nothing is open between two messages."""

    def _ask(self, request: dict[str, object]) -> bytes:
        message = msgspec.json.encode(request)

        def talk(connection: socket.socket) -> bytes:
            connection.sendall(_LENGTH.pack(len(message)) + message)
            with connection.makefile("rb") as file:
                (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                answer = file.read(length) if 0 < length <= _MAX_ANSWER_BYTES else b""
            if len(answer) != length:
                raise EOFError
            return answer

        try:
            return conversation("127.0.0.1", self._port, _TIMEOUT_S, talk)
        except (OSError, EOFError, struct.error) as error:
            raise DecodescopeError(
                f"port {self._port}: dynolog does not answer; look whether it runs"
            ) from error
