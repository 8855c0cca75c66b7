"""The list of candidates while a comparison runs, when nothing can be chosen."""

from pathlib import Path

from decodescope.tui.panels.comparing.setup import ComparisonSetupPanel
from tests.helpers.scripted import settle
from tests.tui.comparing.page import TALL, Page
from tests.tui.comparing.scripted_comparison import done, measured, whole_round


def listed(page: Page) -> list[str]:
    """The names in the list, from the top."""
    rows = page.app.screen.query_one(ComparisonSetupPanel)._shown
    return [rows.key(place) for place in range(len(rows))]


async def test_only_what_is_compared_is_listed_meanwhile(tmp_path: Path) -> None:
    page = Page(tmp_path)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        every = listed(page)
        assert len(every) > 2
        await pilot.press("down", "c")
        await settle(pilot)
        await page.say(pilot, *measured("eager", 0)[:2])
        assert listed(page) == ["eager", "compiled"]
        await pilot.press("enter")
        await settle(pilot)
        assert listed(page) == ["eager", "compiled"]
        for number in range(3):
            await page.say(pilot, *whole_round(number))
        await page.say(pilot, *done())
        assert listed(page) == every
