"""The timeline at every size, and of almost nothing."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from decodescope.analyzer import analyze
from decodescope.analyzer.tracks.build import find_tracks
from decodescope.tui.background import analyse_files
from decodescope.tui.model.picks import (
    NOTHING,
    GapPick,
    KernelPick,
    OpPick,
    RangePick,
    Selection,
    SpanPick,
)
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.timeline.timeline_panel import TimelinePanel
from decodescope.tui.style.palette import ASCII, UNICODE, Inks, themed_inks
from tests.helpers.app.looks import DARK_ONLY, Looks, after
from tests.helpers.app.recorded import app_of
from tests.helpers.kineto_events import call, event, op, span, trace_of


def view_of(analysis, selection: Selection = NOTHING) -> View:
    window = Window(Path("it"), analysis, find_tracks(analysis), 0.0)
    return View("trace", "it", window=window, selection=selection)


BRUSHES = [
    Brush(themed_inks({}, True), UNICODE),
    Brush(Inks(), UNICODE),
    Brush(Inks(), ASCII),
    Brush(themed_inks({}, False, few_colors=True), UNICODE, "rule"),
]


@pytest.mark.parametrize("brush", BRUSHES)
def test_every_size_is_drawn_and_no_row_is_too_wide(brush, trace_file):
    analysis = analyse_files([trace_file], 0.0).analysis
    picks = [None, OpPick(5), GapPick(5), KernelPick("x"), RangePick("decode_step"), SpanPick(0, 9)]
    for one in picks:
        view = view_of(analysis, Selection(one))
        panel = TimelinePanel(brush, view)
        data = panel.pick(view)
        for width, height in [(1, 1), (2, 3), (7, 2), (20, 5), (61, 12), (300, 100)]:
            sheet = panel.draw(data, width, height)
            assert len(sheet.rows) <= height
            assert all(row.cells <= max(width, 1) for row in sheet.rows)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [span(0, 0, "decode_step")],
        [call(5, 5, 1)],
        [op(7, 7, 1)],
        [op(7, 8, 1)],
        [event("cpu_op", "aten::mm", 3, 9, 4242, 1)],
    ],
)
def test_traces_with_almost_nothing(events):
    view = view_of(analyze(trace_of(*events)))
    panel = TimelinePanel(BRUSHES[0], view)
    data = panel.pick(view)
    if isinstance(data, Empty):
        assert "nothing" in data.hint
        return
    for width, height in [(1, 1), (30, 6), (120, 40)]:
        assert panel.draw(data, width, height).rows


async def test_how_it_looks(snapshot: SnapshotAssertion, trace_file: Path) -> None:
    stops = {
        "zoomed": after("2", "G", "f", "minus", "minus"),
        "compressed": after("0", "c", "plus", "plus", "full_stop"),
    }
    await Looks(snapshot, DARK_ONLY).walk(lambda traits: app_of(trace_file, traits), stops)
