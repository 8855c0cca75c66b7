"""Clicks on what is no table: parts of the answer, classes of gaps, marks of the roofline."""

from pathlib import Path

from decodescope.analyzer.vocabulary.words import part_words
from decodescope.tui.model.picks import GapFilter, KernelPick
from decodescope.tui.panels.answer import AnswerPanel
from decodescope.tui.panels.gap_classes import _NAME_CELLS, GapClassesPanel, bucket
from decodescope.tui.panels.roofline import RooflinePanel
from tests.helpers.app.recorded import app_of, press
from tests.helpers.scripted import settle, text_of


async def test_a_click_chooses_a_part_and_a_second_one_opens_it(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        panel = app.query_one(AnswerPanel)
        part = app._painter.shown().window.report.answer.parts[2]
        lines = text_of(app).split("\n")
        at = next(y for y, line in enumerate(lines) if part_words(part.part) in line[:30])
        await pilot.click(offset=(6, at))
        assert panel._cursor == 2
        assert app._focus.page == "step"
        await pilot.click(offset=(6, at), times=2)
        await settle(pilot)
        assert app._focus.page == "timeline"


async def test_a_click_chooses_a_class_of_gaps_or_one_of_its_buckets(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4")
        panel = app.query_one(GapClassesPanel)
        shown = panel._data
        line = next(line for line in shown.lines if line.gap_class == "launch_call")
        y = next(y for y, text in enumerate(text_of(app).split("\n")) if line.name in text)
        await pilot.click(offset=(6, y))
        await settle(pilot)
        assert app._focus.selection.gaps == GapFilter("launch_call")
        bound = line.total.histogram[1][0]
        x = panel.region.x + panel.inset + _NAME_CELLS + shown.bounds.index(bound) * panel._wide
        await pilot.click(offset=(x, y))
        await settle(pilot)
        assert app._focus.selection.gaps == GapFilter("launch_call", bucket(bound))


async def test_a_click_on_a_mark_selects_its_kernel(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "6")
        panel = app.query_one(RooflinePanel)
        x, y, name = panel._marks[0]
        await pilot.click(panel, offset=(x + panel.inset, y + 1))
        await settle(pilot)
        assert app._focus.selection.pick == KernelPick(name)
