"""The command palette and lists in terminals too small for a line of them."""

import pytest
from textual.command import CommandPalette

from tests.helpers.scripted import Session

KEYS = ("pagedown", "pageup", "down", "pagedown", "home", "end", "up", "pageup")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8])
async def test_every_key_of_the_palette_in_every_height(session: Session, rows: int) -> None:
    async with session.app.run_test(size=(40, rows)) as pilot:
        await session.run(pilot)
        await pilot.press("ctrl+p")
        await pilot.pause(0.3)
        assert CommandPalette.is_open(session.app)
        await pilot.press(*KEYS)
        await pilot.resize_terminal(40, 30)
        await pilot.pause(0.1)
        await pilot.press(*KEYS)
        await pilot.resize_terminal(40, rows)
        await pilot.press(*KEYS, "escape")
        assert session.app.crash is None


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
async def test_every_key_of_the_variants_in_every_height(session: Session, rows: int) -> None:
    async with session.app.run_test(size=(40, rows)) as pilot:
        await session.run(pilot)
        await pilot.press("v", *KEYS, "escape")
        assert session.app.crash is None
