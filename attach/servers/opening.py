"""Opens the door into the server at a URL."""

from pathlib import Path

from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.server_door import ServerDoor
from decodescope.attach.servers.tokens import Token


def open_server(url: str, trace_dir: Path | None, token: Token | None = None) -> ServerDoor:
    """The door into the inference server at `url`, as `parse_address` takes it.

    `trace_dir` is the folder of this machine in which the server's traces appear, None if the
    server says it, or takes one that it is told.

    Raises:
        DecodescopeError: the URL is none, or no inference server answers there.
    """
    client = ServerClient(parse_address(url), token)
    return ServerDoor(client, recognise(client), trace_dir)
