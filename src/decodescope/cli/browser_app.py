"""The process of an app whose screen is in a browser: it ends with the browser's connection."""

import asyncio
import codecs
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from decodescope.analyzer.text.numbers import is_integer, whole_number
from decodescope.cli.app import MAX_CELLS

# An app ends within half a second; one that hangs is ended.
_QUIT_S, _TERMINATE_S = 0.6, 0.3
# A paste is longer than a key; nothing that a person does is longer.
MAX_MESSAGE_BYTES = 1 << 20
_READ_BYTES = 1 << 16


def cells(number: object) -> int | None:
    """A width or height of a terminal, at least 1 and at most `MAX_CELLS`; None if it is none."""
    if isinstance(number, str):
        number = whole_number(number)
    return min(max(number, 1), MAX_CELLS) if is_integer(number) else None


class BrowserApp(AppService):
    """An app process, `arguments`, that draws into `websocket`."""

    def __init__(
        self, arguments: Sequence[str], websocket: web.WebSocketResponse, downloads: DownloadManager
    ) -> None:

        async def close() -> None:
            await websocket.close()

        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=close,
            download_manager=downloads,
        )
        self._arguments, self._websocket = tuple(arguments), websocket

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the app without a shell: the process is a child, and sees its parent end."""
        environment = self._build_environment(width=width, height=height)
        # The process group of its own keeps Ctrl-C on the server's terminal from it.
        process = await asyncio.create_subprocess_exec(
            *self._arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, process_group=0
        )
        assert process.stderr is not None
        self._saying = asyncio.create_task(_pass_to_stderr(process.stderr))
        # textual-serve would keep all of it in memory, and print it on stdout as it is.
        process.stderr = asyncio.StreamReader()
        process.stderr.feed_eof()
        self._process, self._stdin = process, process.stdin
        return process

    async def run(self) -> None:
        """Pass on what the app draws until it ends, however that is, and end the connection."""
        await super().run()
        await self._websocket.close()

    async def serve_messages(self) -> None:
        """Pass the page's messages on until it leaves; a malformed one ends the connection."""
        message: WSMessage
        async for message in self._websocket:
            if message.type is not WSMsgType.TEXT or not await self.pass_on(message.data):
                await self._websocket.close(
                    code=WSCloseCode.UNSUPPORTED_DATA, message=b"not a message of this page"
                )
                return

    async def pass_on(self, text: str) -> bool:
        """Pass on a message of the page: typed text, a ping, a size in cells, or the focus. False
        if it is malformed."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return False
        match message:
            case ["stdin", str(typed)]:
                # A lone surrogate is no text.
                await self.send_bytes(typed.encode("utf-8", "replace"))
            case ["ping", str(sent)]:
                await self._websocket.send_json(["pong", sent])
            case ["resize", {"width": width, "height": height}]:
                columns, rows = cells(width), cells(height)
                if columns is None or rows is None:
                    return False
                await self.set_terminal_size(columns, rows)
            case ["blur" | "focus" as kind, *_]:
                await self.send_meta({"type": kind})
            case _:
                return False
        return True

    async def stop(self) -> None:
        """End the app: it is asked to quit, then terminated, then killed."""
        process, task = self._process, self._task
        if process is None or task is None:
            return
        self._task = None
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        await self.send_meta({"type": "quit"})
        for end, patience_s in ((None, _QUIT_S), ("terminate", _TERMINATE_S), ("kill", None)):
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    getattr(process, end)()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await process.wait()
                    break
        await asyncio.wait([self._saying], timeout=_TERMINATE_S)
        self._saying.cancel()
        task.cancel()
        await asyncio.gather(task, self._saying, return_exceptions=True)

    async def on_meta(self, data: bytes) -> None:
        """As textual-serve; a page that has left hears nothing."""
        with contextlib.suppress(ConnectionError):
            await super().on_meta(data)

    async def on_data(self, payload: bytes) -> None:
        """As textual-serve; a page that has left hears nothing."""
        with contextlib.suppress(ConnectionError):
            await super().on_data(payload)


async def _pass_to_stderr(stream: asyncio.StreamReader) -> None:
    """Copy the stderr of an app to that of this process, which makes it plain text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await stream.read(_READ_BYTES):
        sys.stderr.write(decoder.decode(data))
