"""Doors to servers of tests, and what was asked through them."""

from collections.abc import Callable
from pathlib import Path

from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.opening import open_servers
from decodescope.attach.servers.server_door import Pace, ServerDoor
from decodescope.attach.servers.tokens import Token
from tests.helpers.servers.http_server import Answering, HttpServer

PROFILE = {"/start_profile", "/stop_profile"}
Serve = Callable[[Answering], HttpServer]


def open_server(url: str, trace_dir: Path | None, token: Token | None = None) -> ServerDoor:
    """The door that a user's command opens to one server."""
    door = open_servers([url], [] if trace_dir is None else [trace_dir], token, print)
    assert isinstance(door, ServerDoor)
    return door


def door_to(
    server: HttpServer, trace_dir: Path | None, files_s: float = 20.0, steps_s: float = 30.0
) -> ServerDoor:
    client = ServerClient(parse_address(server.url))
    return ServerDoor(client, recognise(client), trace_dir, Pace(files_s=files_s, steps_s=steps_s))


def profile_requests(server: HttpServer) -> list[str]:
    return [path for _, path in server.asked if path in PROFILE]
