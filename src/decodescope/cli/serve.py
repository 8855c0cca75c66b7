"""`serve`: files in the app, in a browser on this machine."""

import asyncio
import errno
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.recordings.following import is_being_written
from decodescope.cli.open import newest
from decodescope.cli.options import FILE
from decodescope.cli.output import say

if TYPE_CHECKING:
    from aiohttp import web

HOST = "127.0.0.1"


@click.command()
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
@click.option("--port", metavar="N", type=click.IntRange(1, 65535), default=8000, show_default=True)
def serve(files: tuple[Path, ...], port: int) -> None:
    """Show traces or recordings in the app in a browser on this machine.

    Every browser gets an app of its own; none starts a model. The recording of a run that has not
    ended is followed. Without a file, a bundled recording.
    """
    names = []
    for file in files:
        found = newest(file)
        if not found.is_file():
            raise InputError(f"{file}: each browser reads it; save it to a file and name that")
        names.append(f"{file.name} (as it is recorded)" if is_being_written(found) else file.name)
    try:
        import textual_serve  # noqa: F401
    except ImportError as error:
        raise MissingRequirement(
            "serve: needs textual-serve, which is not installed; "
            "install it from a checkout with: pip install '.[serve]'"
        ) from error
    asyncio.run(_serve(open_command(files), port, names))


def open_command(files: Iterable[Path]) -> str:
    """The shell's command that opens `files` in an app."""
    paths = [str(file.absolute()) for file in files]
    return shlex.join([sys.executable, "-m", "decodescope", "open", *paths])


async def _serve(command: str, port: int, names: list[str]) -> None:
    from aiohttp import web

    runner = web.AppRunner(await _application(command, port))
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        shown = ", ".join(names) or "a bundled recording"
        say(f"http://{HOST}:{port} shows {shown} to every user of this machine, who can read, "
            "export and overwrite files as you; Ctrl-C ends it")  # fmt: skip
        await asyncio.Event().wait()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is in use" if error.errno == errno.EADDRINUSE else "is not yours to open"
        raise InputError(f"--port {port}: {reason}; name another one") from error
    finally:
        await runner.cleanup()


async def _application(command: str, port: int) -> "web.Application":
    from aiohttp import web
    from textual_serve.server import Server

    class LoopbackServer(Server):
        """Ends the apps of all browsers with the server, and starts in silence."""

        def __init__(self) -> None:
            super().__init__(command, HOST, port, "decodescope")
            self._connections: set[asyncio.Task[Any]] = set()

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                return await super().handle_websocket(request)
            finally:
                self._connections.discard(task)

        async def on_startup(self, app: web.Application) -> None:
            pass

        async def on_shutdown(self, app: web.Application) -> None:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    application = await LoopbackServer()._make_app()
    application.middlewares.append(_only_own_pages(port))
    return application


def _only_own_pages(port: int) -> Any:
    """Refuses what another web page asks for: a browser lets any page connect to this machine, and
    a name that an attacker controls may lead here."""
    from aiohttp import web

    hosts = {f"{HOST}:{port}", f"localhost:{port}"}
    origins = {None, *(f"http://{host}" for host in hosts)}

    @web.middleware
    async def refuse(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.host not in hosts or request.headers.get("Origin") not in origins:
            raise web.HTTPForbidden(text="only pages of this server may connect")
        return await handler(request)

    return refuse
