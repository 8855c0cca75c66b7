"""Servers of a test, whose clock is the door's."""

from collections.abc import Iterator

import pytest

from decodescope.attach.servers import server_door
from tests.helpers.servers.doors import Serve
from tests.helpers.servers.engines import Clock, Load
from tests.helpers.servers.http_server import Answering, HttpServer


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """A load whose clock is the door's."""
    clock = Clock()
    monkeypatch.setattr(server_door, "time", clock)
    return Load(clock)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def start(answer: Answering) -> HttpServer:
        servers.append(HttpServer(answer))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.kill()
