"""The end of the app ends its threads, also during a window."""

import threading
import time

from tests.helpers.scripted_door import metrics


async def test_closing_during_a_window(attachment) -> None:
    before = set(threading.enumerate())
    attachment.door.answers = [metrics(1)]
    attachment.door.go.clear()
    async with attachment.app.run_test(size=(80, 24)) as pilot:
        await pilot.press("t")
        await attachment.until(pilot, lambda: attachment.view.attached.stage == "records 300 ms")
        began_s = time.monotonic()
        await pilot.press("q")
    assert attachment.door.closed
    assert attachment.door.left_during_window
    assert attachment.door.taken == 0
    assert attachment.link._metrics.done()
    assert attachment.link._window.done()
    assert time.monotonic() - began_s < 20
    new = set(threading.enumerate()) - before
    # Those are of the pool of the loop, which asyncio keeps.
    assert all(thread.name.startswith("asyncio_") for thread in new), new


async def test_the_target_is_left_once(attachment, monkeypatch) -> None:
    """A window that hangs is waited for, which takes 10 s each time."""
    waits = []
    monkeypatch.setattr(attachment.link, "_leave", lambda: waits.append(1))
    async with attachment.app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
    assert waits == [1]


async def test_a_target_that_hangs_does_not_hold_up_the_end(attachment, monkeypatch) -> None:
    hangs, asked = threading.Event(), threading.Event()
    before = set(threading.enumerate())

    def metrics_hang() -> None:
        asked.set()
        hangs.wait(60)

    attachment.door.metrics = metrics_hang
    async with attachment.app.run_test(size=(80, 24)) as pilot:
        await attachment.until(pilot, asked.is_set)
        await attachment.take(pilot, 1)
    assert not attachment.link._metrics.done()
    new = set(threading.enumerate()) - before
    hanging = [thread for thread in new if not thread.name.startswith("asyncio_")]
    assert hanging
    assert all(thread.daemon for thread in hanging)
    hangs.set()
