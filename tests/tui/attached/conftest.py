"""The app over a scripted door."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from decodescope.attach.door import WindowPlan
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.attached import AttachLink
from decodescope.tui.model.sources import AttachSource
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import StillClock, settle, text_of
from tests.helpers.scripted_door import ScriptedDoor

PATIENCE_S = 30.0


class Attachment:
    """An app that is attached through `door`, and what it shows."""

    def __init__(self, folder: Path, traits: TerminalTraits | None = None) -> None:
        self.door, self.clock = ScriptedDoor(folder), StillClock()
        self.link = AttachLink(self.door, WindowPlan(folder, 300), poll_s=0.01)
        self.app = DecodescopeApp(AttachSource(self.link), traits, self.clock, folder)

    @property
    def shown(self) -> str:
        return text_of(self.app)

    @property
    def said(self) -> str:
        return " ".join(note.message for note in self.app._notifications)

    @property
    def view(self):
        return self.app._painter.shown()

    async def until(self, pilot, is_so: Callable[[], bool]) -> None:
        """Wait for the threads of the link, then for everything that they have delivered."""
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, self.shown
            await asyncio.sleep(0.01)
        await settle(pilot)

    async def take(self, pilot, count: int) -> None:
        """Take windows with `t`, until there are `count`."""
        while (taken := len(self.view.choices)) < count:
            await pilot.press("t")
            await self.until(pilot, lambda before=taken: len(self.view.choices) > before)
            await self.until(pilot, lambda: not self.view.analysing)


@pytest.fixture
def attachment(tmp_path: Path) -> Attachment:
    return Attachment(tmp_path)
