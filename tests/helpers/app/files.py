"""What a user does on page 8."""

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.panels.files import PathPanel
from tests.helpers.scripted import settle


async def typed(pilot, text: str) -> None:
    """Type a path as a user who pastes it."""
    await pilot.press("o")
    field = pilot.app.screen.query_one(PathPanel).field
    assert field.has_focus
    field.value = text
    await settle(pilot)


def names(app: DecodescopeApp) -> list[str]:
    return [entry.name for entry in app._focus.shelf.visible()]
