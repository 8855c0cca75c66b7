"""The footer shows the keys that do something now."""

from pathlib import Path

from decodescope.analyzer.protocol.messages import Log, State
from decodescope.tui.panels.around import KeysPanel
from tests.helpers import scripted
from tests.helpers.scripted import settle
from tests.tui.comparing.page import Page


def footer(session: scripted.Session | Page) -> set[str]:
    keys = session.app.screen.query_one(KeysPanel)._data
    return {command.action.partition(".")[2] for command in keys}


async def test_keys_of_rows_are_shown_once_there_are_rows(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        session.link.say(scripted.hello(), State("running", "eager"))
        await settle(pilot)
        assert not {"open_part", "fold"} & footer(session)
        await pilot.press("3")
        await settle(pilot)
        assert not {"find", "filter", "sort"} & footer(session)
        assert "help" in footer(session)
        session.link.say(scripted.ready(scripted.write_trace(tmp_path / "window.json")))
        await settle(pilot)
        assert {"find", "filter", "sort"} <= footer(session)
        await pilot.press("1")
        await settle(pilot)
        assert {"open_part", "fold"} <= footer(session)


async def test_enter_does_nothing_on_a_line_of_the_log(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, Log("info", "weights loaded"))
        await pilot.press("9")
        await settle(pilot)
        assert "copy_line" in footer(session)
        assert "enter" not in footer(session)


async def test_a_comparison_is_cancelled_only_while_it_runs(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await pilot.press("7")
        await settle(pilot)
        assert {"start", "rounds(1)"} <= footer(session)
        assert "cancel" not in footer(session)


async def test_files_are_compared_without_rounds(tmp_path: Path) -> None:
    page = Page(tmp_path, *(scripted.write_trace(tmp_path / name) for name in ("a.json", "b.json")))
    async with page.app.run_test(size=(120, 40)) as pilot:
        await page.open(pilot)
        assert "start" in footer(page)
        assert "rounds(1)" not in footer(page)
