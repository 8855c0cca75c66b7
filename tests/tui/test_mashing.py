"""Keys mashed at random, a storm of resizes, and a worker that dies at any moment."""

import random

import pytest

from tests.helpers.scripted import settle
from tests.mash import Mash


@pytest.mark.parametrize("seed", range(4))
async def test_the_app_stays_or_ends_cleanly_whatever_is_pressed(tmp_path, monkeypatch, seed):
    """`python -m tests.mash` does the same for as long as it is left alone."""
    monkeypatch.chdir(tmp_path)
    await Mash(tmp_path, random.Random(seed)).run(60)


@pytest.mark.parametrize("size", [(80, 1), (80, 3), (1, 24), (4, 24), (6, 24)])
@pytest.mark.parametrize("opening", ["ctrl+p", "v"])
async def test_lists_can_be_paged_without_room_for_a_row(session, opening, size):
    async with session.app.run_test(size=size) as pilot:
        await session.run(pilot)
        await pilot.press(opening)
        await settle(pilot)
        for key in ("down", "pagedown", "pageup", "end", "pagedown", "home", "escape"):
            await pilot.press(key)
        await settle(pilot)
    assert session.app.crash is None
