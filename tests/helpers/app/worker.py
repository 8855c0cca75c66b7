"""Workers of links under test: real ones, and a few lines of Python that misbehave."""

import asyncio
import sys
from pathlib import Path

import msgspec

from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.link.worker import WorkerLink

PATIENCE_S = 60


def config(checkpoint: Path | str, **changes) -> WorkerConfig:
    plain = WorkerConfig(
        model=str(checkpoint), variant="eager", batch=2, context=16, tokens=200, device="cpu"
    )
    return msgspec.structs.replace(plain, **changes)


async def until(link: WorkerLink, wanted, seconds: float = PATIENCE_S) -> list[LinkEvent]:
    """Events up to and including the first that `wanted` accepts."""
    events: list[LinkEvent] = []
    async with asyncio.timeout(seconds):
        while True:
            event = await link.receive()
            assert event is not None, events
            events.append(event)
            if wanted(event):
                return events


def is_a(kind: type, **fields):
    return lambda event: (
        isinstance(event, kind)
        and all(getattr(event, name) == value for name, value in fields.items())
    )


def of(events: list[LinkEvent], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def scripted(tmp_path: Path, body: str) -> WorkerLink:
    """A link to a worker that is a few lines of Python: `control` is its socket."""
    path = tmp_path / "worker.py"
    path.write_text(
        "import socket, sys, time, os, signal\n"
        "control = socket.socket(fileno=int(sys.argv[1]))\n" + body
    )
    return WorkerLink(config("none"), argv=(sys.executable, str(path)))


def sending(*frames: bytes) -> str:
    return f"control.sendall({b''.join(frames)!r})\n"
