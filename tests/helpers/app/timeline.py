"""The timeline of an app under test."""

from pathlib import Path

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.panels.timeline.timeline_panel import TimelinePanel
from tests.helpers.kineto_events import document
from tests.helpers.scripted import settle, text_of


async def opened(pilot) -> TimelinePanel:
    await settle(pilot)
    await pilot.press("2")
    await settle(pilot)
    return pilot.app.query_one(TimelinePanel)


def pick(app: DecodescopeApp):
    return app._painter.shown().selection.pick


def saved(path: Path, *events, **keys) -> Path:
    path.write_bytes(document(list(events), **keys))
    return path


def title(app: DecodescopeApp) -> str:
    return next(line for line in text_of(app).splitlines() if "─ Timeline  " in line)
