"""Textual's tests wait until the process used almost no CPU for 20 ms, twice a key; these wait
until nothing is left to do."""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import pytest
from textual._context import active_app
from textual._wait import SLEEP_GRANULARITY, wait_for_idle
from textual.pilot import Pilot

RESIZE_S = 1 / 120
_in_threads: WeakSet[asyncio.Future[Any]] = WeakSet()


async def until_nothing_is_due(min_sleep: float = SLEEP_GRANULARITY, max_sleep: float = 1) -> None:
    """Return when every task waits for a time or a file, and threads have ended; one that does not
    end gets the patience that Textual has."""
    loop, app = asyncio.get_running_loop(), active_app.get()
    while True:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        if app._resize_timer is not None:
            # The app takes the last size of several that come within this time.
            await asyncio.sleep(RESIZE_S)
            continue
        running = [each for each in _in_threads if each.get_loop() is loop and not each.done()]
        if not running:
            return
        done, _ = await asyncio.wait(
            running, timeout=SLEEP_GRANULARITY, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            await wait_for_idle(min_sleep, max_sleep)
            return


def use_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pilots wait in this way."""
    run_in_executor = asyncio.BaseEventLoop.run_in_executor

    def watched(
        loop: asyncio.BaseEventLoop, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = run_in_executor(loop, executor, function, *args)
        _in_threads.add(future)
        return future

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", watched)

    async def at_once(pilot: Pilot[object], timeout: float = 0) -> bool:
        """Instead of a message to every widget, which then has to answer it."""
        return True

    monkeypatch.setattr(Pilot, "_wait_for_screen", at_once)
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", until_nothing_is_due)
