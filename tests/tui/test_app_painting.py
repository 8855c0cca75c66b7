"""When the app paints, when it does not, and at which sizes."""

import asyncio
import threading
import time

import pytest
from textual._compositor import Compositor
from textual.widget import Widget

from decodescope.analyzer.protocol.messages import State
from decodescope.tui import feeds
from decodescope.tui.painter import ANSWER_INTERVAL_S, PAINT_INTERVAL_S
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Sheet
from decodescope.tui.screens.main import MainScreen
from tests.helpers.scripted import DIED, hello, play, ready, settle, stats, text_of, write_trace


async def test_freeze_holds_the_view_and_skips_analyses(session, trace_file, monkeypatch):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        before = text_of(session.app)
        called = []
        monkeypatch.setattr(
            feeds,
            "analyse_files",
            lambda paths, at, progress, given=None: called.append(paths) or 1 / 0,
        )
        session.link.say(stats(2, "eager", 88.8), ready(trace_file))
        await settle(pilot)
        frozen = text_of(session.app)
        monkeypatch.undo()
        assert not called
        session.clock.now += 5
        await pilot.press("space")
        await settle(pilot)
        thawed = text_of(session.app)
    assert frozen == before
    assert "frozen" in frozen.splitlines()[0]
    assert "frozen" in frozen.splitlines()[2]
    assert "88.8" in thawed
    assert "host-bound" in thawed


async def test_a_resumed_app_draws_every_widget_again(session, monkeypatch):
    """The shell drew over it; what the compositor holds says nothing of that."""
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        drawn = []
        whole = Widget.refresh
        monkeypatch.setattr(
            Widget,
            "refresh",
            lambda self, *where, **how: drawn.append(self) or whole(self, *where, **how),
        )
        session.app.app_resume_signal.publish(session.app)
        await settle(pilot)
        shown = [*session.app.screen.walk_children(with_self=True)]
    assert len(shown) > 5
    assert set(shown) <= set(drawn)


async def test_a_frozen_view_survives_a_resize(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        session.link.say(stats(2, "eager", 88.8))
        await pilot.resize_terminal(140, 45)
        await settle(pilot)
        shown = text_of(session.app)
    assert "88.8" not in shown
    assert "frozen" in shown


async def test_the_screen_goes_on_while_an_analysis_runs_and_the_latest_window_wins(
    session, tmp_path, monkeypatch
):
    gate, started, paths = threading.Event(), threading.Event(), []
    analyse = feeds.analyse_files

    def parked(files, at, progress, given=None):
        paths.append(files[0].name)
        started.set()
        gate.wait(20)
        return analyse(files, at, progress, given)

    monkeypatch.setattr(feeds, "analyse_files", parked)
    windows = [write_trace(tmp_path / f"window-{number}.json") for number in range(4)]
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello(), State("running", "eager"), ready(windows[0]))
        while not started.is_set():
            await pilot.pause(0.02)
        session.link.say(*(ready(window) for window in windows[1:]), stats(7, "eager", 77.7))
        await pilot.pause(0.4)
        shown = text_of(session.app)
        gate.set()
        await settle(pilot)
        assert "host-bound" in text_of(session.app)
    assert "77.7" in shown
    assert paths == ["window-0.json", "window-3.json"]


async def test_a_burst_of_reports_is_painted_a_few_times_only(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        strip, drawn = session.app.screen.query_one("#strip"), []
        draw = strip.draw
        strip.draw = lambda *size: drawn.append(size) or draw(*size)
        began = time.monotonic()
        for seq in range(60):
            session.link.say(stats(seq, "eager", 50.0 + seq))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)
        assert 1 <= len(drawn) <= (time.monotonic() - began) / PAINT_INTERVAL_S + 2
        assert "109" in text_of(session.app)


async def test_at_rest_nothing_is_drawn(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        await pilot.press("space")
        await settle(pilot)
        drawn = []
        for panel in session.app.screen.query("Panel"):
            panel.draw = lambda *size, name=panel.id: drawn.append(name) or Sheet([])
        session.link.say(stats(8, "eager", 12.3))
        await asyncio.sleep(1.3)
        assert drawn == []


async def test_sizes_from_one_cell_to_a_wall(session, trace_file):
    sizes = [
        (1, 1),
        (2, 3),
        (5, 1),
        (1, 40),
        (9, 9),
        (20, 6),
        (34, 12),
        (59, 15),
        (60, 16),
        (76, 20),
        (79, 24),
        (80, 24),
        (99, 34),
        (100, 33),
        (100, 34),
        (120, 40),
        (159, 50),
        (160, 34),
        (200, 50),
        (300, 3),
        (300, 100),
    ]
    async with session.app.run_test(size=(80, 24)) as pilot:
        await play(session.app, session.link, session.clock)
        session.link.say(ready(trace_file), DIED)
        await settle(pilot)
        for width, height in sizes:
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            lines = text_of(session.app).splitlines()
            assert len(lines) <= height
            assert session.app.screen.size == (width, height)


@pytest.mark.parametrize("key", ["enter", "3"])
async def test_a_key_lays_out_once_and_repaints_no_more_than_what_changed(
    session, trace_file, monkeypatch, key
):
    calls = []

    def count(kind, name):
        called = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *a, **k: calls.append(name) or called(*a, **k))

    async with session.app.run_test(size=(100, 60)) as pilot:
        await session.run(pilot, ready(trace_file))
        count(MainScreen, "_refresh_layout")
        count(Compositor, "render_full_update")
        count(Compositor, "render_partial_update")
        await pilot.press(key)
        await settle(pilot)
        await asyncio.sleep(0.1)
    assert calls.count("_refresh_layout") == 1
    assert calls.count("render_full_update") == 0
    assert 1 <= calls.count("render_partial_update") <= 2


async def test_of_the_titles_that_of_the_panel_with_the_focus_is_marked(session, trace_file):
    async with session.app.run_test(size=(140, 40)) as pilot:
        await session.run(pilot, ready(trace_file))
        await pilot.press("4")
        inks = session.app._brush().inks
        for focused in ("gap_list", "gap_classes", "gap_list"):
            await settle(pilot)
            assert session.app.focused.id == focused
            marked = [
                panel.NAME
                for panel in session.app.screen.query(Panel)
                if panel.display and inks.focused in [part.style for part in panel.render_line(0)]
            ]
            assert marked == [focused]
            await pilot.press("tab")


@pytest.mark.parametrize("keys", ["", "p"])
async def test_the_answer_to_a_key_is_painted_soon_and_other_changes_later(
    session, monkeypatch, keys
):
    waits = []
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.answers = True
        await session.run(pilot)
        timer = MainScreen.set_timer
        monkeypatch.setattr(
            MainScreen, "set_timer", lambda self, *a: waits.append(a[0]) or timer(self, *a)
        )
        await pilot.press(*keys)
        if not keys:
            session.link.say(stats(2, "eager", 88.8))
        while not waits:
            await asyncio.sleep(0.01)
        await settle(pilot)
        shown = text_of(session.app)
    assert waits == [ANSWER_INTERVAL_S if keys else PAINT_INTERVAL_S]
    assert ("paused" if keys else "88.8") in shown
    assert ANSWER_INTERVAL_S < PAINT_INTERVAL_S / 4


async def test_keys_in_quick_succession_do_not_put_a_paint_off(session, monkeypatch):
    painted = []
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        painter = session.app._painter
        paint = painter.paint
        monkeypatch.setattr(painter, "paint", lambda: painted.append(1) or paint())
        session.link.say(stats(2, "eager", 88.8))
        while painter._due is None:
            await asyncio.sleep(0.005)
        for _ in range(20):
            painter.acted()
            await asyncio.sleep(0.01)
    assert painted
