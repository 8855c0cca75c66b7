"""The server of `serve`: an app for each browser of this machine."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from textual_serve.server import Server

from decodescope.analyzer.errors import InputError
from decodescope.cli.output import say

HOST = "127.0.0.1"


def run_server(command: str, port: int, names: list[str]) -> None:
    """Serve an app, which `command` starts, to each browser until the process is ended; `names` are
    what it shows.

    Raises:
        InputError: the port cannot be used.
    """
    asyncio.run(_serve(command, port, names))


async def _serve(command: str, port: int, names: list[str]) -> None:
    runner = web.AppRunner(await _application(command, port))
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        shown = ", ".join(names) or "a bundled recording"
        say(
            f"http://{HOST}:{port} shows {shown} to every user of this machine, who can read, "
            "export and overwrite files as you; Ctrl-C ends it"
        )
        await asyncio.Event().wait()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is in use" if error.errno == errno.EADDRINUSE else "is not yours to open"
        raise InputError(f"--port {port}: {reason}; name another one") from error
    finally:
        await runner.cleanup()


async def _application(command: str, port: int) -> web.Application:
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
