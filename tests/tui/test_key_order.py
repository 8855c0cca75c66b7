"""Keys that arrive together are answered in their order, as those of a paste or of a script."""

from dataclasses import replace
from pathlib import Path

from textual import events
from textual.keys import _character_to_key
from textual.widgets import Input

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.files import PathPanel
from tests.helpers.scripted import settle, text_of, write_trace

NAMED = {"ctrl+u", "backspace", "left", "enter", "escape", "down", "home", "end"}


def press_at_once(app, *keys: str) -> None:
    """As if they arrived in one read."""
    for key in keys:
        named = key in NAMED
        app.post_message(
            events.Key(key if named else _character_to_key(key), None if named else key)
        )


async def test_an_input_takes_letters_and_keys_in_their_order(session) -> None:
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await pilot.press("8", "o")
        await settle(pilot)
        field = session.app.screen.query_one(Input)
        field.value = "before"
        for _ in range(5):
            keys = "end", "ctrl+u", *"/ab", "backspace", "c", "left", *"12", "home", "3"
            press_at_once(session.app, *keys)
            await settle(pilot)
            assert field.value == "3/a12c"


async def test_no_paint_takes_back_what_was_typed_since(session, monkeypatch) -> None:
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await pilot.press("8", "o", "a")
        await settle(pilot)
        painter = session.app._painter
        panel, before = session.app.screen.query_one(PathPanel), painter.shown()
        with monkeypatch.context() as patch:
            patch.setattr(painter, "paint", lambda: None)
            await pilot.press(*"bcd")
        for typed in ("a", "ab", "abc"):
            panel.show(replace(before, shelf=replace(before.shelf, typed=typed)))
            assert panel.field.value == "abcd"
        painter.paint()
        assert painter.shown().shelf.typed == panel.field.value == "abcd"


async def test_a_filter_is_typed_at_once(tmp_path: Path) -> None:
    app = DecodescopeApp(TraceSource((write_trace(tmp_path / "a.json"),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("3")
        await settle(pilot)
        press_at_once(app, "f", *"zzx", "backspace", "backspace", *"y1", "enter", "4", "3")
        await settle(pilot)
        assert "filter: zy1" in text_of(app)
        assert app._focus.page == "kernels"
