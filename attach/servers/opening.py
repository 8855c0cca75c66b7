"""Opens the door into the server at a URL, or into several at once."""

from collections.abc import Sequence
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.attach.door import Door
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.group_door import GroupDoor
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


def open_servers(urls: Sequence[str], trace_dirs: Sequence[Path], token: Token | None) -> Door:
    """The door into the server at one URL, or into the group of those at several. `trace_dirs` are
    as in `open_server`, none or one for each URL; the `token` is for all.

    Raises:
        DecodescopeError: as `open_server`, for any of them.
        InputError: a URL is named twice, or there are folders for some of them only.
    """
    if trace_dirs and len(trace_dirs) != len(urls):
        raise InputError(
            f"--trace-dir {trace_dirs[0]}: give one for each URL, in their order; these are "
            f"{len(trace_dirs)} for {len(urls)}"
        )
    folders: Sequence[Path | None] = trace_dirs or [None] * len(urls)
    doors = [open_server(url, folder, token) for url, folder in zip(urls, folders, strict=True)]
    names = [door.name for door in doors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name}: named twice; give each server once")
    return doors[0] if len(doors) == 1 else GroupDoor(doors)
