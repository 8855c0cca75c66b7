"""A dynolog that runs already: it is asked to give processes a configuration.

dynolog listens on TCP port 1778; a message is its length (`<i`) and JSON, and so is the answer.
Source: facebookincubator/dynolog `SimpleJsonServerInl.h`, `gputrace.rs`.
"""

import socket
import struct
import time
from collections.abc import Callable, Collection
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from decodescope.analyzer.errors import DecodescopeError
from decodescope.attach.kineto.config_source import ConfigSource, Delivery
from decodescope.attach.kineto.timing import Timing

PORT = 1778
_LENGTH = struct.Struct("<i")
_MAX_ANSWER_BYTES = 1 << 20
_TIMEOUT_S = 2.0
_Pid = Annotated[int, Meta(ge=0)]


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
            except msgspec.DecodeError as error:
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
        try:
            with socket.create_connection(("127.0.0.1", self._port), _TIMEOUT_S) as connection:
                connection.sendall(_LENGTH.pack(len(message)) + message)
                until_s = time.monotonic() + _TIMEOUT_S
                (length,) = _LENGTH.unpack(_received(connection, _LENGTH.size, until_s))
                if not 0 < length <= _MAX_ANSWER_BYTES:
                    raise EOFError
                return _received(connection, length, until_s)
        except (OSError, EOFError) as error:
            raise DecodescopeError(
                f"port {self._port}: dynolog does not answer; look whether it runs"
            ) from error


def _received(connection: socket.socket, count: int, until_s: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(until_s - time.monotonic(), 0.001))
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
