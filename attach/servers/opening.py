"""Opens the door into the server at a URL, or into several at once."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path

from decodescope.analyzer.errors import (
    DecodescopeError,
    InputError,
    MissingRequirement,
    known_error,
)
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import Door
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import LIMIT_S, ServerClient
from decodescope.attach.servers.engine import EngineServer, recognise
from decodescope.attach.servers.group_door import GroupDoor
from decodescope.attach.servers.server_door import ServerDoor
from decodescope.attach.servers.tokens import Token

# For all that a server is asked at first; of a single request, its own limit counts.
_ANSWERS_S = LIMIT_S + 0.25


def open_servers(
    urls: Sequence[str],
    trace_dirs: Sequence[Path],
    token: Token | None,
    say: Callable[[str], None],
) -> Door:
    """The door into the inference server at one URL, or into the group of those at several, which
    are as `parse_address` takes them.

    `trace_dirs` are the folders of this machine in which the servers' traces appear: one for each
    URL, or none if each server says it, or takes one that it is told. The `token` is for all. A
    server of a group that does not answer is named in a line, and asked again with the metrics.

    Raises:
        DecodescopeError: a URL is none, or no inference server answers, at the first of them.
        InputError: a URL is named twice, or there are folders for some of them only.
    """
    if trace_dirs and len(trace_dirs) != len(urls):
        raise InputError(
            f"--trace-dir {trace_dirs[0]}: give one for each URL, in their order; these are "
            f"{len(trace_dirs)} for {len(urls)}"
        )
    folders: Sequence[Path | None] = trace_dirs or [None] * len(urls)
    clients = [ServerClient(parse_address(url), token) for url in urls]
    readable = [one.address.url for one in clients if one.address.is_readable_on_the_way]
    if token is not None and readable:
        say(f"the token goes unencrypted to {', '.join(readable)}; use https, or a tunnel")
    doors, problems = list[ServerDoor](), list[DecodescopeError]()
    answers = [in_daemon_thread(partial(recognise, client)) for client in clients]
    until_s = time.monotonic() + _ANSWERS_S
    for client, folder, recognised in zip(clients, folders, answers, strict=True):
        wait([recognised], max(until_s - time.monotonic(), 0))
        try:
            if not recognised.done():
                raise MissingRequirement(
                    f"{client.address.url}: has not said within {_ANSWERS_S:g} s what it is; see "
                    "whether it still works"
                )
            server = recognised.result()
        except Exception as error:
            problems.append(known_error(error))
            server = EngineServer("unknown", None, None, None, None, problem=str(problems[-1]))
        doors.append(ServerDoor(client, server, folder))
    names = [door.name for door in doors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name}: named twice; give each server once")
    if len(problems) == len(urls):
        raise problems[0]
    for problem in problems:
        say(f"attached without {problem}")
    return doors[0] if len(doors) == 1 else GroupDoor(doors)
