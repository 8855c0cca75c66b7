"""Cases of requests to the server of `mcp`, many of one client: odd arguments, odd messages."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

from tests.fuzzing.case import ODD_TEXTS, Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_json
from tests.fuzzing.planted import planted_trace
from tests.fuzzing.traces import window

_KEPT = "kept"
_PATHS = (
    "a.json",
    "b.json",
    "./a.json",
    "deep/c.json",
    "inside",
    "outside",
    "device",
    "deep",
    ".",
    "decodescope://recordings/nope",
    "/etc/passwd",
    "../a.json",
    "deep/../a.json",
    "missing.json",
)
_LINKS = {"inside": "a.json", "outside": "/etc/hostname", "device": "/dev/zero"}
_FOLDERS = (_KEPT, "deep", "outside", "../other", "/tmp/other")
_NUMBERS = (0, 1, 1, 2, 5, "3")
_ODD = (10**6, 10**15, 2**70, -1, 1.5, None, *ODD_VALUES)
# Tools with the arguments that they must have, and others.
_NEEDED = {
    "diff": ("base", "other"),
    "gate": ("paths", "baseline"),
    "compare": ("variants",),
    **dict.fromkeys(("answer", "kernels", "gaps", "layers", "timeline"), ("path",)),
}
_ARGUMENTS = {
    "open": ("path", "offset", "model", "batch", "captures"),
    "answer": ("all_parts", "offset"),
    "kernels": ("offset", "count", "index"),
    "gaps": ("by", "offset"),
    "layers": ("under", "offset"),
    "timeline": ("step", "at_ns", "span_ns", "device", "offset"),
    "diff": ("rows", "offset"),
    "gate": ("folder", "allow", "save"),
    "run": ("model", "trace"),
    "compare": ("out",),
    "explain": ("term", "offset"),
}
_WORDS = {
    "by": ("group", "length", "device"),
    "rows": ("parts", "ranges"),
    "baseline": ("main", "../main"),
    "model": ("tiny", "gpt-oss-20b", "/etc/passwd"),
    "term": ("step time", "ns"),
    "under": ("",),
    "save": (True, False),
    "all_parts": (True, False),
    "span_ns": (1, 10**5, 10**9),
}
_METHODS = ("tools/list", "resources/list", "resources/templates/list", "ping", "nope")
_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "fuzzer", "version": "0"},
}
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PATIENCE_S = 8.0


def mcp_case(rng: random.Random) -> Case:
    """A folder of traces, and a client that asks about them."""
    files = {name: _trace(rng) for name in ("a.json", "b.json", "deep/c.json")}
    messages = [_request(0, "initialize", _HELLO), _notice("notifications/initialized")]
    messages += [_message(number, rng) for number in range(1, rng.choice((5, 10, 25)))]
    if rng.random() < 0.05:
        del messages[0]
    outputs = (_KEPT, "deep", ".decodescope")
    return Case(("mcp", "."), files, outputs, links=_LINKS, messages=tuple(messages))


def _trace(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return as_json(window(rng), rng)
    data = planted_trace(rng)
    return damage_json(data, rng) if rng.random() < 0.2 else data


def _request(number: int, method: str, params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode("utf-8", "surrogatepass")


def _notice(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method}).encode()


def _message(number: int, rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.8:
        data = _request(number, "tools/call", _call(rng))
    elif kind < 0.88:
        addresses = ("decodescope://terms", "decodescope://terms/step%20time", *ODD_TEXTS)
        data = _request(number, "resources/read", {"uri": rng.choice(addresses)})
    elif kind < 0.95:
        data = _request(number, rng.choice(_METHODS), rng.choice(({}, None, *ODD_VALUES)))
    else:
        data = as_json(rng.choice(ODD_VALUES), rng)
    return damage_bytes(data, rng) if rng.random() < 0.05 else data


def _call(rng: random.Random) -> object:
    if rng.random() < 0.03:
        return rng.choice((*ODD_VALUES, {"name": "nope", "arguments": {}}))
    name = rng.choice(list(_ARGUMENTS))
    chosen = [key for key in _ARGUMENTS[name] if rng.random() < 0.4]
    chosen += [key for key in _NEEDED.get(name, ()) if rng.random() < 0.98]
    return {"name": name, "arguments": {key: _value(key, rng) for key in chosen}}


def _value(key: str, rng: random.Random) -> object:
    if key in ("folder", "out"):
        return rng.choice(_FOLDERS)
    if rng.random() < 0.05:
        return rng.choice(_ODD)
    if key in ("base", "other", "paths", "captures"):
        return [_path(rng) for _ in range(rng.choice((1, 1, 2)))]
    if key in ("allow", "variants"):
        return [str(_value("", rng)) for _ in range(2)]
    if key in ("path", "trace"):
        return _path(rng)
    return rng.choice(_WORDS.get(key, _NUMBERS))


def _path(rng: random.Random) -> str:
    return rng.choice(_PATHS if rng.random() < 0.3 else _PATHS[:4])


def answer_messages(messages: tuple[bytes, ...]) -> int:
    """Serve the messages one after another in this process; 0 once the server has ended."""
    asyncio.run(_serve(messages))
    return 0


async def _serve(messages: tuple[bytes, ...]) -> None:
    from decodescope.cli.mcp.server import serve_client
    from decodescope.cli.mcp.tool_host import ToolHost

    client = _Client(messages)
    await serve_client(ToolHost([Path()], allow_write=True, allow_run=False), client, client)


class _Client:
    """Both ends of the client: each request waits for its answer, which is checked."""

    def __init__(self, messages: tuple[bytes, ...]) -> None:
        self._messages = messages
        self._answered = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[str]:
        from mcp.types import JSONRPCRequest, jsonrpc_message_adapter

        for data in self._messages:
            line = data.decode(errors="replace").replace("\n", " ")
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                message = None
            self._answered.clear()
            yield line + "\n"
            if isinstance(message, JSONRPCRequest):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._answered.wait()

    async def write(self, text: str) -> None:
        check_answer(json.loads(text))
        self._answered.set()

    async def flush(self) -> None:
        pass


def check_answer(message: dict[str, object]) -> None:
    """An answer of a tool is short, and shows no control character but line ends."""
    from decodescope.cli.mcp.answers import ANSWER_BYTES

    result = message.get("result")
    for content in result.get("content", ()) if isinstance(result, dict) else ():
        text = content["text"]
        assert len(text.encode()) <= ANSWER_BYTES, f"an answer of {len(text)} characters"
        shown = _CONTROL.search(text)
        assert shown is None, f"control character {shown.group()!r} in an answer"
        assert not result.get("isError") or "fault" not in text, text
