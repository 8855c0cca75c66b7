"""Time limits for others: sockets whose whole use has one, and calls that may never return."""

import io
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


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


class TimedSocket(io.RawIOBase):
    """The part of a socket that `http.client` uses. `close` does nothing: whoever opened the socket
    closes it."""

    def __init__(self, raw: socket.socket, deadline: Deadline) -> None:
        self._raw, self._deadline = raw, deadline

    def sendall(self, data: bytes) -> None:
        self._raw.settimeout(self._deadline.left_s())
        self._raw.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._raw.settimeout(self._deadline.left_s())
        return self._raw.recv_into(buffer)

    def close(self) -> None:
        pass


def connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A TCP connection to the first address of `host` that accepts one.

    Raises:
        OSError: the name is not known, or no address accepts within the time.
    """
    failure: OSError = OSError(f"{host} has no address")
    # `getaddrinfo` has no time limit of its own.
    resolving = in_daemon_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    addresses = resolving.result(deadline.left_s())
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


def in_daemon_thread(call: Callable[[], T]) -> Future[T]:
    """The result of `call`, from a thread that does not hold up the end of this process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
