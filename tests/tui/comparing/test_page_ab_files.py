"""The A/B page: files compared, saved comparisons opened, and comparisons exported."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.schema.comparison_report import Diff
from tests.helpers.scripted import settle, text_of, write_trace
from tests.tui.comparing.page import TALL, Page, said
from tests.tui.comparing.scripted_comparison import comparison, done


async def test_two_files_are_compared(tmp_path: Path) -> None:
    files = [write_trace(tmp_path / f"{name}.json", name) for name in ("eager", "compiled")]
    page = Page(tmp_path, *files)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        assert "c compares A with B, or with the row" in text_of(page.app)
        assert "Speed beside accuracy" not in text_of(page.app)
        await pilot.press("c")
        await settle(pilot)
        shown = text_of(page.app)
        assert "A  eager · eager.json" in shown
        assert "B  compiled · compiled.json" in shown
        assert "x1.000" in shown
        before = page.state.result
        assert isinstance(before, Diff)
        # One file cannot be compared, and a bad one loses nothing.
        await pilot.press("enter", "c")
        await settle(pilot)
        assert "Choose a file for A and one for B" in said(page)
        await pilot.press("enter")
        files[1].write_text("{")
        await pilot.press("c")
        await settle(pilot)
        assert page.state.phase == "failed"
        assert "compiled.json" in page.state.error
        assert page.state.result is before
        assert "x1.000" in text_of(page.app)


async def test_a_file_is_named_in_a_dialog(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = comparison(3, accuracy=True)
    (tmp_path / "saved.json").write_bytes(msgspec.json.encode(saved))
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        for text, problem in (
            ("", "name a file"),
            (".", ".: is a folder"),
            ("none", "none: no such file"),
        ):
            await pilot.press("d")
            await _type(pilot, text)
            assert problem in text_of(page.app)
            await pilot.press("escape")
        await pilot.press("d")
        await _type(pilot, "saved.json")
        await settle(pilot)
        assert page.state.result == saved
        assert "saved.json" in text_of(page.app)
        # There is no window yet that a trace could be compared with.
        await pilot.press("d")
        write_trace(tmp_path / "other.json")
        await _type(pilot, "other.json")
        await settle(pilot)
        assert "no window to compare it with" in text_of(page.app)
        assert page.state.result == saved


async def test_a_path_is_completed_and_the_file_of_that_name_is_compared(tmp_path: Path) -> None:
    opened, _, wanted = (
        write_trace(tmp_path / f"{name}.json") for name in ("one", "other", "wanted")
    )
    page = Page(tmp_path, opened)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "d")
        await pilot.press(*f"{tmp_path}/wan", "tab", "enter")
        await settle(pilot)
        assert isinstance(page.state.result, Diff)
        assert page.state.result.other.source.path == str(wanted)


async def test_a_comparison_is_exported_and_opened_again(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "e")
        assert "comparison as JSON" not in text_of(page.app)
        await pilot.press("escape", "c")
        await page.say(pilot, *done())
        for keys in (("e",), ("e", "down")):
            await pilot.press(*keys)
            await settle(pilot)
            await pilot.press("enter")
            await settle(pilot)
        (markdown,) = tmp_path.glob("*.md")
        assert "| eager |" in markdown.read_text()
        (written,) = tmp_path.glob("*.json")
        before = page.state.result
        await pilot.press("d")
        await _type(pilot, written.name)
        await settle(pilot)
        assert page.state.origin == written.name
        assert page.state.result == before
        assert page.state.result is not before


async def _type(pilot, text: str) -> None:
    from textual.widgets import Input

    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")
    await pilot.pause()
