"""Time limits for others: a whole conversation over a connection, and calls that may never
return."""

import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def conversation(
    host: str, port: int, limit_s: float, talk: Callable[[socket.socket], T], tls: bool = False
) -> T:
    """The result of `talk` with a TCP connection to `host`; `limit_s` is for all of it, from the
    host's name to the last byte.

    Raises:
        OSError: the name is not known, or no address accepts; `TimeoutError` after `limit_s`.
    """
    opened: list[socket.socket] = []

    def run() -> T:
        # Half the time for an address that stays silent, since another one may accept.
        connection = socket.create_connection((host, port), limit_s / 2)
        try:
            connection.settimeout(limit_s)
            if tls:
                context = ssl.create_default_context()
                connection = context.wrap_socket(connection, server_hostname=host)
            opened.append(connection)
            return talk(connection)
        finally:
            connection.close()

    try:
        return in_daemon_thread(run).result(limit_s)
    finally:
        for connection in opened:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)


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
