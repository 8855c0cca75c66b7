"""The step by part and by layer on the A/B page."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison_messages import ComparisonDone
from decodescope.analyzer.schema.comparison_report import Comparison
from tests.helpers.hostile import HOSTILE, unsafe
from tests.helpers.scripted import settle, text_of
from tests.tui.comparing.page import TALL, Page
from tests.tui.comparing.scripted_comparison import comparison, done, whole_round


def table(page: Page) -> str:
    """The lines below the title of the table, until the next table."""
    text = text_of(page.app)
    for title in ("Parts: ", "Layers: "):
        if title in text:
            return title + text.partition(title)[2].partition("Ranges: ")[0]
    return ""


def without_steps() -> Comparison:
    found = comparison(3)
    windows = {
        name: msgspec.structs.replace(window, layers=()) for name, window in found.windows.items()
    }
    pairs = tuple(msgspec.structs.replace(p, step=None) for p in found.comparison.pairs)
    result = msgspec.structs.replace(found.comparison, pairs=pairs)
    return msgspec.structs.replace(found, windows=windows, comparison=result)


async def test_it_turns_from_parts_to_layers_and_back(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), *done())
        shown = table(page)
        assert shown.startswith("Parts: eager to compiled")
        rows = [
            line
            for line in shown.splitlines()
            if "gate_up" in line or "waiting for the host" in line
        ]
        assert "-17,000" in rows[0]
        assert "-100" in rows[1]
        assert "step -16,700 µs · l: by layer" in shown
        page.app.query_one("#ab_step").focus()
        await pilot.press("l")
        await settle(pilot)
        shown = table(page)
        assert shown.startswith("Layers: eager to compiled")
        assert "layer 0" in shown
        assert "rest of the step" in shown
        assert "gate_up" not in shown
        await pilot.press("l", "slash", *"attention", "enter")
        await settle(pilot)
        assert table(page).startswith("Parts: eager to compiled")


async def test_without_parts_there_is_no_table(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), ComparisonDone(without_steps()))
        assert table(page) == ""
        assert "Ranges: eager to compiled" in text_of(page.app)


@pytest.mark.parametrize("key", ["", "l"])
async def test_hostile_parts_are_harmless(tmp_path: Path, key: str) -> None:
    found = comparison(3)
    pair = found.comparison.pairs[0]
    assert pair.step is not None
    part = msgspec.structs.replace(pair.step.parts[0], part=HOSTILE)
    layer = msgspec.structs.replace(pair.step.layers[0], part=HOSTILE, kind="layer")
    step = msgspec.structs.replace(pair.step, parts=(part,), layers=(layer,))
    pairs = (msgspec.structs.replace(pair, step=step),)
    result = msgspec.structs.replace(found.comparison, pairs=pairs)
    page = Page(tmp_path)
    async with page.app.run_test(size=(200, 60)) as pilot:
        await page.open(pilot, "c")
        end = ComparisonDone(msgspec.structs.replace(found, comparison=result))
        await page.say(pilot, *whole_round(0), end)
        page.app.query_one("#ab_step").focus()
        await pilot.press(*key)
        await settle(pilot)
        shown = text_of(page.app)
    assert r"[/][bold]=cmd|:fire:\x1b]0;owned" in shown
    assert not unsafe(shown)
    assert page.app.crash is None
