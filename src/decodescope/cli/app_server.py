"""The server of `serve`: an app for each browser session, on this machine."""

import asyncio
import errno
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import textual_serve
from aiohttp import WSCloseCode, web
from textual_serve.server import Server

from decodescope.analyzer.errors import InputError
from decodescope.cli.browser_app import MAX_MESSAGE_BYTES, BrowserApp, cells
from decodescope.cli.browser_guard import Guard
from decodescope.cli.browser_page import PAGE, STYLE
from decodescope.cli.ending import Ending
from decodescope.cli.output import say

HOST = "127.0.0.1"
# Each is a process of 100 MB.
MOST_APPS = 8
_HEARTBEAT_S = 15.0
_STATIC = Path(textual_serve.__file__).parent / "static"


def run_server(arguments: Sequence[str], port: int, names: list[str], ending: Ending) -> None:
    """Serve an app, the process `arguments`, to each browser session until a signal ends this
    process; `names` are what it shows.

    Raises:
        InputError: the port cannot be used.
    """
    ending.run(partial(_serve, arguments, port, names))


async def _serve(arguments: Sequence[str], port: int, names: list[str]) -> None:
    server = AppServer(arguments, port)
    runner = web.AppRunner(server.application())
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        shown = ", ".join(names) or "a bundled recording"
        say(
            f"http://{HOST}:{port}/?token={server.guard.token} shows {shown}; who has this address "
            "can read, export and overwrite files as you; Ctrl-C ends it"
        )
        await asyncio.Event().wait()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is in use" if error.errno == errno.EADDRINUSE else "is not yours to open"
        raise InputError(f"--port {port}: {reason}; name another one") from error
    finally:
        await runner.cleanup()


class AppServer(Server):
    """Starts an app for each session that opens the page; a session that opens it again gets a new
    app in place of its old one. At most `most_apps` run."""

    def __init__(self, arguments: Sequence[str], port: int, most_apps: int = MOST_APPS) -> None:
        super().__init__("decodescope", HOST, port)
        self.guard = Guard(HOST, port)
        self._arguments, self._most_apps = tuple(arguments), most_apps
        self._apps: dict[str, asyncio.Task[None]] = {}

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self.guard.check])
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/page.css", self._style),
                web.get("/ws", self.handle_websocket),
                web.get("/download/{key}", self.handle_download),
                web.static("/static", _STATIC),
            ]
        )
        application.on_response_prepare.append(self.guard.add_headers)
        application.on_shutdown.append(self.on_shutdown)
        return application

    async def _page(self, request: web.Request) -> web.Response:
        if (token := request.query.get("token")) is not None:
            return self.guard.begin_session(token)
        text = PAGE.substitute(websocket=f"ws://{request.host}/ws")
        return web.Response(text=text, content_type="text/html")

    async def _style(self, request: web.Request) -> web.Response:
        return web.Response(text=STYLE, content_type="text/css")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run an app of the session until the page leaves or the app ends."""
        session = self.guard.session(request)
        assert session is not None, "the guard lets no other request pass"
        websocket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES)
        if not websocket.can_prepare(request):
            raise web.HTTPBadRequest(text="this path is for a WebSocket")
        if (before := self._apps.get(session)) is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        if len(self._apps) >= self._most_apps:
            raise web.HTTPServiceUnavailable(
                text=f"{self._most_apps} apps run already; close one and load this page again"
            )
        width = cells(request.query.get("width")) or 80
        height = cells(request.query.get("height")) or 24
        app = BrowserApp(self._arguments, websocket, self.download_manager)
        task = asyncio.create_task(_run(app, request, websocket, (width, height)))
        self._apps[session] = task
        try:
            await asyncio.gather(task, return_exceptions=True)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._apps.get(session) is task:
                del self._apps[session]
        return websocket

    async def on_shutdown(self, app: web.Application) -> None:
        """End the apps of all browsers."""
        for task in self._apps.values():
            task.cancel()
        await asyncio.gather(*self._apps.values(), return_exceptions=True)


async def _run(
    app: BrowserApp,
    request: web.Request,
    websocket: web.WebSocketResponse,
    size: tuple[int, int],
) -> None:
    await websocket.prepare(request)
    try:
        await app.start(*size)
        await app.serve_messages()
    finally:
        await app.stop()
        await websocket.close(code=WSCloseCode.GOING_AWAY)
