"""A socket whose whole use has a time limit, however slowly the other side writes."""

import io
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment, by `time.monotonic`, at which a request has to be done."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    def left_s(self) -> float:
        """The seconds that are left.

        Raises:
            TimeoutError: there are none.
        """
        left = self.at_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class TimedSocket:
    """What `http.client` uses of a socket. `close` does nothing: who opened the socket closes
    it."""

    def __init__(self, raw: socket.socket, deadline: Deadline) -> None:
        self._raw, self._deadline = raw, deadline

    def sendall(self, data: bytes) -> None:
        self._raw.settimeout(self._deadline.left_s())
        self._raw.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._raw, self._deadline))

    def close(self) -> None:
        pass


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: socket.socket, deadline: Deadline) -> None:
        self._raw, self._deadline = raw, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._raw.settimeout(self._deadline.left_s())
        return self._raw.recv_into(buffer)


def connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A TCP connection to the first address of `host` that accepts one.

    Raises:
        OSError: the name is not known, or no address accepts within the time.
    """
    failure: OSError = OSError(f"{host} has no address")
    addresses = _addresses(host, port, deadline)
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        raw = socket.socket(family, kind, protocol)
        try:
            raw.settimeout(deadline.left_s() / (len(addresses) - index))
            raw.connect(address)
            return raw
        except OSError as error:
            raw.close()
            failure = error
        except BaseException:
            raw.close()
            raise
    raise failure


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    """`socket.getaddrinfo`, which has no time limit of its own, in a thread that may outlive it."""
    found: list[Any] = []
    failures: list[Exception] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    if thread.is_alive():
        raise TimeoutError
    if failures:
        raise failures[0]
    return found
