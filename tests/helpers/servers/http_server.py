"""A server in a thread that answers each request as it is told, and keeps what it was asked."""

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """An answer; with `raw`, only those bytes, and the connection closes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


Answering = Callable[[Request], Reply]


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


class HttpServer:
    """Listens on a free port of 127.0.0.1 for the length of a block."""

    def __init__(self, answer: Answering, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(answer))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def asked(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.requests]

    def kill(self) -> None:
        """Stop listening, as a server that died."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def _handler(self, answer: Answering) -> type[BaseHTTPRequestHandler]:
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(self.command, self.path, body, dict(self.headers))
                requests.append(request)
                reply = answer(request)
                try:
                    self._write(reply)
                except (BrokenPipeError, ConnectionResetError):  # the client has seen enough
                    self.close_connection = True

            def _write(self, reply: Reply) -> None:
                if reply.raw is not None:
                    self.wfile.write(reply.raw)
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = _reply

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler
