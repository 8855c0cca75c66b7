"""A dynolog of the test's own: the daemon's socket, and the port at which windows are asked for."""

import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.helpers.libkineto import header

Rpc = Callable[[bytes], bytes | None]


class FakeDynolog:
    """Processes that have asked are known, and get a configuration when they ask again."""

    def __init__(self, socket_folder: str) -> None:
        self.requests: list[dict[str, Any]] = []
        self._known: dict[int, int] = {}
        self._configs: dict[int, str] = {}
        self._daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._daemon.bind(f"{socket_folder}/dynolog")

    def answer_processes(self, stop: threading.Event) -> None:
        with self._daemon:
            while not stop.is_set():
                if not select.select([self._daemon], [], [], 0.02)[0]:
                    continue
                data, address = self._daemon.recvfrom(1 << 16)
                count, job = struct.unpack_from("=iq", data, 44)
                pids = struct.unpack_from(f"={count}i", data, 56)
                self._known[pids[0]] = job
                config = self._configs.pop(pids[0], "").encode()
                with suppress(OSError):
                    self._daemon.sendto(header(b"req", len(config)) + config, address)

    def rpc(self, text: bytes) -> bytes | None:
        request = json.loads(text)
        self.requests.append(request)
        if request["fn"] == "getVersion":
            return b'{"version":"1.0"}'
        matched = [
            pid
            for pid in request["pids"]
            if self._known.get(pid) == request["job_id"] and pid not in self._configs
        ]
        for pid in matched:
            self._configs[pid] = f"\n    {request['config']}\n    REQUEST_TRACE_ID=7"
        return json.dumps(
            {
                "processesMatched": matched,
                "activityProfilersTriggered": matched,
                "eventProfilersTriggered": [],
                "activityProfilersBusy": 0,
            }
        ).encode()


@contextmanager
def rpc_server(rpc: Rpc) -> Iterator[int]:
    """The port of a server that answers length-prefixed messages; None closes the connection."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not stop.is_set():
                if select.select([server], [], [], 0.02)[0]:
                    connection, _ = server.accept()
                    with connection, suppress(OSError, struct.error):
                        (length,) = struct.unpack("=i", connection.recv(4))
                        answer = rpc(connection.recv(length, socket.MSG_WAITALL))
                        if answer is not None:
                            connection.sendall(struct.pack("=i", len(answer)) + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()


@contextmanager
def fake_dynolog(socket_folder: str) -> Iterator[tuple[FakeDynolog, int]]:
    """A running dynolog, and its port."""
    dynolog, stop = FakeDynolog(socket_folder), threading.Event()
    thread = threading.Thread(target=dynolog.answer_processes, args=(stop,))
    thread.start()
    try:
        with rpc_server(dynolog.rpc) as port:
            yield dynolog, port
    finally:
        stop.set()
        thread.join()
