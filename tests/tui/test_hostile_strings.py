"""The app with a worker, a model and traces whose every string is hostile."""

import re

import pytest
from hypothesis import given
from rich.cells import cell_len
from rich.style import Style
from textual.content import Content

from decodescope.analyzer.protocol.messages import Failure
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.actions.pages import no_markup
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.sheet import Row
from tests.helpers.hostile import (
    FILE,
    FILE_SHOWN,
    HOSTILE,
    SHOWN,
    anything,
    hostile_events,
    hostile_trace,
    unsafe,
)
from tests.helpers.scripted import StillClock, settle, text_of

SIZES = [(40, 12), (80, 24), (160, 50), (300, 100)]
BEGIN = SHOWN[:16]


@pytest.fixture
def trace(tmp_path):
    return hostile_trace(tmp_path / FILE)


@pytest.mark.parametrize("size", SIZES)
async def test_a_live_run_shows_hostile_strings_as_text(session, trace, size):
    async with session.app.run_test(size=size) as pilot:
        session.link.say(*hostile_events(trace))
        await settle(pilot)
        running = text_of(session.app)
        session.link.say(Failure(HOSTILE, 2, fatal=False))
        await settle(pilot)
        failed = text_of(session.app)
        session.link.say(WorkerDied(-9, (HOSTILE, HOSTILE)))
        await settle(pilot)
        died = text_of(session.app)
        copied = []
        for key in "13":
            await pilot.press(key, "y")
            copied.append(session.app.clipboard)
    for shown in (running, failed, died, *copied):
        # A table is copied with tabs between its cells.
        assert unsafe(shown.replace("\t", "") if shown in copied else shown) == ""
        assert all(cell_len(line) <= size[0] for line in shown.splitlines()) or shown in copied
    assert BEGIN in failed
    if size[0] >= 160:
        assert running.count(SHOWN[:40]) >= 4
        assert SHOWN in copied[0]
        assert f"second{SHOWN}" in copied[1]


async def test_notifications_and_the_palette_show_names_as_text(session, trace):
    async with session.app.run_test(size=(200, 50), notifications=True) as pilot:
        session.link.say(*hostile_events(trace))
        await settle(pilot)
        await pilot.press("v", "2")
        await settle(pilot)
        notified = text_of(session.app)
        await pilot.press("ctrl+p")
        await pilot.pause(0.5)
        palette = text_of(session.app)
        await pilot.press(*"switch")
        await pilot.pause(0.5)
        found = text_of(session.app)
    for shown in (notified, palette, found):
        assert unsafe(shown) == ""
        assert BEGIN in shown
    assert f"2{BEGIN}" in notified
    assert f"Switch to {BEGIN}" in found


async def test_paths_that_are_typed_and_completed_are_text(session):
    name = f"begins {FILE}"
    (session.folder / name).write_text(HOSTILE)
    async with session.app.run_test(size=(200, 50)) as pilot:
        await session.run(pilot)
        await pilot.press("o")
        field = session.app.screen.query_one("Input")
        field.value = "no [/] such\u202e[red]"
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        wrong = text_of(session.app)
        field.value = "begins"
        await settle(pilot)
        await pilot.press("tab")
        await settle(pilot)
        completed = text_of(session.app)
        assert field.value == name
        await pilot.press("enter")
        await settle(pilot)
        failed = text_of(session.app)
    assert r"no [/] such\u202e[red]: no such file" in wrong
    for shown in (wrong, completed, failed):
        assert unsafe(shown) == ""
    assert f"begins {FILE_SHOWN[:16]}" in failed


async def test_trace_files_with_hostile_names_open_and_fail_as_text(tmp_path, trace):
    broken = tmp_path / f"broken{FILE}"
    broken.write_text(HOSTILE)
    paths = (tmp_path / FILE, broken)
    app = DecodescopeApp(TraceSource(paths), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(240, 60)) as pilot:
        await settle(pilot)
        opened = text_of(app)
        await pilot.press("v", "2")
        await settle(pilot)
        failed = text_of(app)
    for shown in (opened, failed):
        assert unsafe(shown) == ""
        assert FILE_SHOWN[:20] in shown
    assert f"broken{FILE_SHOWN[:16]}" in failed


@given(anything)
def test_a_row_is_as_wide_as_it_says(text):
    for row in (
        Row().add(text, Style.null()),
        Row().left(text, 7, Style.null()),
        Row().right(text, 7, Style.null()),
    ):
        shown = "".join(segment.text for segment in row.segments)
        assert row.cells == cell_len(shown)
        assert re.sub("[\u200c\u200d]", "", shown).isprintable()


@given(anything)
def test_the_palette_reads_no_name_as_markup(text):
    assert Content.from_markup(no_markup(text)).plain == plain_line(text)
