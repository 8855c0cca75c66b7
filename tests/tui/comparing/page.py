"""The A/B page of an app under test."""

from pathlib import Path

from decodescope.analyzer.protocol.messages import Heartbeat, State
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import LiveSource, TraceSource
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import ScriptedLink, StillClock, hello, settle, stats, text_of
from tests.tui.comparing.scripted_comparison import ScriptedComparison

KEY = next(page.key for page in PAGES if page.name == "ab")
TALL = (120, 60)


class Page:
    """The app on the A/B page, over a live worker or over files."""

    def __init__(self, folder: Path, *files: Path, traits: TerminalTraits | None = None) -> None:
        self.worker, self.link = ScriptedLink(answers=True), ScriptedComparison()
        self.clock = StillClock()
        source = TraceSource(files) if files else LiveSource(self.worker)
        self.app = DecodescopeApp(source, traits, self.clock, folder, comparison=self.link)
        self._live = not files

    async def open(self, pilot, *keys: str) -> None:
        if self._live:
            self.worker.say(hello(), State("running", "eager"), stats(1))
        await settle(pilot)
        await pilot.press(KEY, *keys)
        await settle(pilot)

    async def say(self, pilot, *events: object) -> str:
        self.link.say(*events)
        if self._live:
            self.worker.say(Heartbeat())
        await settle(pilot)
        return text_of(self.app)

    @property
    def state(self):
        return self.app._comparisons.state


def said(page: Page) -> str:
    return " ".join(note.message for note in page.app._notifications)
