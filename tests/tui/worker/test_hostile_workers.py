"""A worker that floods, lies about sizes, or is stopped: the app stays usable, and says so."""

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from decodescope.analyzer.protocol.messages import (
    MAX_FRAME_BYTES,
    CaptureTrace,
    Heartbeat,
    Log,
    Progress,
    State,
    TraceReady,
    WorkerMessage,
    encode_frame,
)
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.pages.all_pages import PAGES
from tests.helpers.app.worker import PATIENCE_S, is_a, scripted, sending, until
from tests.helpers.processes import gone
from tests.helpers.scripted import StillClock, capture, hello, stats, text_of

BEGUN = sending(encode_frame(hello()), encode_frame(State("running", "eager")))


def flooding(*messages: WorkerMessage) -> str:
    """Sends `messages` again and again, as fast as it can."""
    block = b"".join(encode_frame(message) for message in messages) * 100
    return f"{BEGUN}block = {block!r}\nwhile True:\n    control.sendall(block)\n"


async def shown(pilot: Pilot[None], text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in text_of(pilot.app):
            await pilot.pause(0.02)


async def turned(pilot: Pilot[None], key: str) -> None:
    """Press the key of a page, and wait for the page."""
    (page,) = (page.name for page in PAGES if page.key == key)
    await pilot.press(key)
    async with asyncio.timeout(PATIENCE_S):
        while pilot.app._focus.page != page:
            await pilot.pause(0.02)


def app_of(link: WorkerLink, folder: Path) -> tuple[DecodescopeApp, StillClock]:
    clock = StillClock()
    return DecodescopeApp(LiveSource(link, False), clock=clock, folder=folder), clock


@pytest.mark.parametrize(
    "message",
    [
        Log("info", "x"),
        State("running", "eager"),
        Progress("x"),
        Heartbeat(),
        stats(1),
        hello(),
        TraceReady("none", capture(), requested=True),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_worker_that_floods_has_to_wait(tmp_path: Path, message: WorkerMessage) -> None:
    link = scripted(tmp_path, flooding(message))
    app, _ = app_of(link, tmp_path / "folder")
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "the worker sends over 1,000 messages a second")
        for key in "931":
            await turned(pilot, key)
        waiting = len(link._inbox), len(link._decoder._buffer)
        lines = len(app._feeds.shown.log.lines)
        pid = link.pid
    assert waiting[0] < 2000
    assert waiting[1] < 1 << 16
    assert lines <= 1000
    assert not (tmp_path / "folder").exists()
    assert pid is not None
    assert gone(pid)


async def test_a_worker_that_sends_now_and_then_is_not_held_up(tmp_path: Path) -> None:
    block = encode_frame(Log("info", "x")) * 400
    body = f"for _ in range(2):\n    control.sendall({block!r})\n    control.recv(100)\n"
    link = scripted(tmp_path, body)
    await link.start()
    for _ in range(2):
        for _ in range(400):
            assert await until(link, is_a(Log)) == [Log("info", "x")]
        await link.send(CaptureTrace())
    await link.close()


async def test_a_window_counts_as_asked_for_as_often_as_it_was(tmp_path: Path) -> None:
    ready = encode_frame(TraceReady("none", capture(), requested=True))
    link = scripted(tmp_path, f"control.recv(100)\n{sending(ready, ready)}control.recv(100)\n")
    await link.start()
    await link.send(CaptureTrace())
    seen = [(await until(link, is_a(TraceReady)))[0] for _ in range(2)]
    await link.close()
    assert [event.requested for event in seen] == [True, False]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            sending((MAX_FRAME_BYTES + 1).to_bytes(4, "big")) + "time.sleep(600)\n",
            f"a frame of {MAX_FRAME_BYTES + 1} bytes is over the limit",
        ),
        (
            sending(MAX_FRAME_BYTES.to_bytes(4, "big"), b"x" * 10) + "time.sleep(600)\n",
            "no word from the worker for 600 s",
        ),
        (sending(bytes(4)) + "time.sleep(600)\n", "unreadable message"),
        ("os.kill(os.getpid(), signal.SIGSTOP)\n", "no word from the worker for 600 s"),
    ],
    ids=["over the limit", "less than it says", "nothing", "stopped"],
)
async def test_a_worker_that_lies_or_stands_still_is_named_and_ended(
    tmp_path: Path, body: str, said: str
) -> None:
    link = scripted(tmp_path, BEGUN + body)
    app, clock = app_of(link, tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        pid = link.pid
        assert pid is not None
        if "no word" in said:
            await shown(pilot, "llama-3.2-1b")
            await standing_still(pid)
            clock.now += 600
            app._painter.paint()
        await shown(pilot, said)
        await turned(pilot, "3")
        assert len(link._decoder._buffer) < 100
    assert gone(pid)


async def standing_still(pid: int) -> None:
    """Wait until a process sleeps or is stopped."""
    async with asyncio.timeout(PATIENCE_S):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ST":
            await asyncio.sleep(0.02)


async def test_of_a_long_line_the_log_keeps_the_beginning(tmp_path: Path) -> None:
    link = scripted(
        tmp_path, BEGUN + sending(encode_frame(Log("info", "y" * (1 << 20)))) + "time.sleep(600)\n"
    )
    app, _ = app_of(link, tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("9")
        await shown(pilot, "yyy")
        (line,) = (line for line in app._feeds.shown.log.lines if line.text.startswith("y"))
    assert line.text == "y" * 4096 + " …"
