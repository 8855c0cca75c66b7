"""An app that answers keys in the order in which they are pressed."""

import asyncio
import contextlib
from typing import Any

from textual import events
from textual.app import App
from textual.widgets import Input

from decodescope.tui.panels.panel import Panel

# For a widget that is removed before it takes a key.
_MOST_WAIT_S = 0.5


class OrderedKeys(App[None]):
    """Textual sends a key to the widget with the focus, and from there to one ancestor after the
    other until a binding takes it; letters that follow at once would overtake it."""

    async def on_event(self, event: events.Event) -> None:
        """Answer a key before the next."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            focused = self.focused
            if isinstance(focused, Input | Panel):
                await self._answer(event, focused)
                return
        await super().on_event(event)

    async def _answer(self, event: events.Key, focused: Input | Panel[Any]) -> None:
        if focused.check_consume_key(event.key, event.character):
            await super().on_event(event)
            taken = asyncio.Event()
            if focused.call_later(taken.set):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(taken.wait(), _MOST_WAIT_S)
        elif not (
            await self._check_bindings(event.key, priority=True)
            or await self._check_bindings(event.key)
        ):
            await super().on_event(event)
