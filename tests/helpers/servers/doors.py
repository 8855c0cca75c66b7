"""The door into one server, with the type that its tests need."""

from pathlib import Path

from decodescope.attach.servers.opening import open_servers
from decodescope.attach.servers.server_door import ServerDoor
from decodescope.attach.servers.tokens import Token


def open_server(url: str, trace_dir: Path | None, token: Token | None = None) -> ServerDoor:
    door = open_servers([url], [] if trace_dir is None else [trace_dir], token, print)
    assert isinstance(door, ServerDoor)
    return door
