"""The A/B page at every size, with names of every kind, and as text."""

from pathlib import Path

import pytest

from decodescope.analyzer.comparing.comparison_messages import ComparisonDone
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.looks import Looks
from tests.helpers.scripted import settle, text_of
from tests.tui.comparing.page import TALL, Page
from tests.tui.comparing.scripted_comparison import comparison, done, measured, whole_round

PLAIN = TerminalTraits(unicode=False, color=False)


@pytest.mark.parametrize("traits", [TerminalTraits(), PLAIN])
async def test_no_size_and_no_name_breaks_it(tmp_path: Path, traits: TerminalTraits) -> None:
    page = Page(tmp_path, traits=traits)
    bad = comparison(3, **{"eager": (1.0, 1.1, 1.2), "[red]\x1b[2Jé\u202e" * 9: (2.0, 2.1, 2.2)})
    async with page.app.run_test(size=(120, 40)) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), ComparisonDone(bad))
        for size in ((1, 1), (7, 3), (20, 9), (60, 16), (80, 24), (300, 100), (129, 30)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert "\x1b" not in text_of(page.app)
    assert page.app.crash is None


async def test_the_page_as_text_has_every_figure(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), *done())
        text = page.app._main.as_text()
    for piece in ("compiled\t212", "x4.51", "waiting for the host", "mlp+input_norm", "+1,200"):
        assert piece in text, piece


async def test_how_it_looks(looks: Looks, tmp_path: Path) -> None:
    def app(traits: TerminalTraits) -> DecodescopeApp:
        nonlocal page
        page = Page(tmp_path, traits=traits)
        return page.app

    async def choose(pilot) -> None:
        await page.open(pilot)

    async def running(pilot) -> None:
        await pilot.press("minus", "minus", "c")
        for event in (*whole_round(0), *measured("eager", 1)[:2]):
            page.clock.now += 2
            await page.say(pilot, event)

    async def finished(pilot) -> None:
        await page.say(pilot, *whole_round(1)[2:], *whole_round(2), *done())

    page = Page(tmp_path)
    await looks.walk(app, {"choose": choose, "running": running, "done": finished})
