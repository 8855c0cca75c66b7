"""The step by part on the A/B page."""

from pathlib import Path

import msgspec

from decodescope.analyzer.comparing.comparison_messages import ComparisonDone
from decodescope.analyzer.schema.comparison_report import Comparison
from tests.helpers.hostile import HOSTILE, unsafe
from tests.helpers.scripted import text_of
from tests.tui.comparing.page import TALL, Page
from tests.tui.comparing.scripted_comparison import comparison, done, whole_round


def table(page: Page) -> str:
    """The lines below the title of the table, until the next table."""
    _, title, rest = text_of(page.app).partition("Parts: ")
    return title + rest.partition("Ranges: ")[0]


def without_steps() -> Comparison:
    found = comparison(3)
    windows = {
        name: msgspec.structs.replace(window, layers=()) for name, window in found.windows.items()
    }
    pairs = tuple(msgspec.structs.replace(p, step=None) for p in found.comparison.pairs)
    result = msgspec.structs.replace(found.comparison, pairs=pairs)
    return msgspec.structs.replace(found, windows=windows, comparison=result)


async def test_the_parts_and_the_step_they_add_up_to(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), *done())
        shown = table(page)
    assert shown.startswith("Parts: eager to compiled")
    gate_up, waiting, step = (
        next(line for line in shown.splitlines() if f" {name} " in line)
        for name in ("gate_up", "waiting for the host", "step")
    )
    assert "-100" in gate_up
    assert "-17,000" in waiting
    assert "-16,700" in step


async def test_without_parts_there_is_no_table(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), ComparisonDone(without_steps()))
        assert table(page) == ""
        assert "Ranges: eager to compiled" in text_of(page.app)


async def test_hostile_parts_are_harmless(tmp_path: Path) -> None:
    found = comparison(3)
    pair = found.comparison.pairs[0]
    assert pair.step is not None
    part = msgspec.structs.replace(pair.step.parts[0], part=HOSTILE)
    step = msgspec.structs.replace(pair.step, parts=(part,))
    pairs = (msgspec.structs.replace(pair, step=step),)
    result = msgspec.structs.replace(found.comparison, pairs=pairs)
    page = Page(tmp_path)
    async with page.app.run_test(size=(200, 60)) as pilot:
        await page.open(pilot, "c")
        end = ComparisonDone(msgspec.structs.replace(found, comparison=result))
        await page.say(pilot, *whole_round(0), end)
        shown = text_of(page.app)
    assert r"[/][bold]=cmd|:fire:\x1b]0;owned" in shown
    assert not unsafe(shown)
    assert page.app.crash is None
