"""Cases of a browser's WebSocket messages to `serve`, whose app is a stand-in."""

import asyncio
import os
import random
import socket
import sys

from tests.fuzzing.case import ODD_NUMBERS, ODD_TEXTS, Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes
from tests.helpers.processes import children

_KINDS = ("stdin", "resize", "ping", "blur", "focus", "quit", "meta", "")
_APP = """
import sys
print("__GANGLION__", flush=True)
while (data := sys.stdin.buffer.raw.read(1 << 16)) and b"quit" not in data: pass
"""
_PATIENCE_S = 8.0


def browser_case(rng: random.Random) -> Case:
    """Some messages, most of them nearly those of the page."""
    frames = tuple(_frame(rng) for _ in range(rng.choice((1, 3, 20))))
    return Case(("serve",), frames=frames)


def _frame(rng: random.Random) -> tuple[bool, bytes]:
    value: object
    if rng.random() < 0.4:
        sides = {"width": rng.choice(ODD_NUMBERS), "height": rng.choice((24, *ODD_NUMBERS))}
        value = ["resize", sides]
    else:
        value = [rng.choice(_KINDS), rng.choice((*ODD_TEXTS, *ODD_VALUES))]
    if rng.random() < 0.2:
        value = rng.choice(ODD_VALUES)
    data = as_json(value, rng)
    if rng.random() < 0.2:
        data = damage_bytes(data, rng)
    return rng.random() < 0.9, data


def talk(frames: tuple[tuple[bool, bytes], ...]) -> int:
    """Send the frames (whether it is text, and the bytes) to a server of this process; 0 once it
    has ended, and its app too."""
    asyncio.run(_talk(frames))
    return 0


async def _talk(frames: tuple[tuple[bool, bytes], ...]) -> None:
    import aiohttp
    from aiohttp import web

    from decodescope.cli.app_server import HOST, AppServer

    listening = socket.create_server((HOST, 0))
    server = AppServer([sys.executable, "-S", "-c", _APP], port := listening.getsockname()[1])
    root, runner = f"http://{HOST}:{port}", web.AppRunner(server.application())
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as client, asyncio.timeout(_PATIENCE_S):
            async with client.get(f"{root}/?token={server.guard.token}") as answer:
                assert answer.status == 200
            page = await client.ws_connect(f"{root}/ws")
            for is_text, data in frames:
                if page.closed:
                    break
                kind = aiohttp.WSMsgType.TEXT if is_text else aiohttp.WSMsgType.BINARY
                try:
                    await page.send_frame(data, kind)
                except aiohttp.ClientConnectionError:
                    break
            # The answer to the last one, or the end: either shows that the server still reads.
            await page.close()
    finally:
        await runner.cleanup()
        async with asyncio.timeout(_PATIENCE_S):
            while children(os.getpid()):
                await asyncio.sleep(0.01)
