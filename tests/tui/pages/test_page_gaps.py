"""Page 4: classes, histograms and the list of all gaps are those of the report, and filter."""

import gc
import re
from functools import cache
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.reports.gap_list import longest_first
from decodescope.analyzer.tables.gaps_table import group_cause
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.tracks.build import find_tracks
from decodescope.tui.actions.pages import NO_STEPS
from decodescope.tui.background import analyse_files, window_of_step
from decodescope.tui.model.describe import gap_lines
from decodescope.tui.model.picks import GapFilter, GapGroupPick, GapPick, Selection
from decodescope.tui.model.view import Window
from decodescope.tui.panels.gap_classes import GapClassesPanel, bucket
from decodescope.tui.panels.gap_list import GapListPanel, GapRows
from decodescope.tui.panels.table_rows import smart_pattern
from tests.helpers import scripted
from tests.helpers.app.recorded import BRUSHES, app_of, drawn, press, view_of, window
from tests.helpers.drawn_windows import Call, Op, analysed, windows
from tests.helpers.kineto_events import call, document, event, op, span
from tests.helpers.scripted import settle, text_of


def selection(app) -> Selection:
    return app._painter.shown().selection


def single_gaps(shown: Window) -> GapListPanel:
    """The list of gaps without groups."""
    panel = GapListPanel(BRUSHES[0], view_of(shown))
    panel._by_group = False
    panel.show(view_of(shown))
    return panel


@cache
def idle_of(variant: str) -> list[tuple[int, str]]:
    """The length of each interval in which nothing ran, and the kernels on both sides of it."""
    trace = window(variant).analysis.trace
    ops = zip(trace.ops.start_ns, trace.ops.end_ns, trace.ops.name, strict=True)
    found, last, before = [], None, ""
    for start, end, name in sorted(ops):
        if last is not None and start > last:
            found.append((int(start - last), f"{before} {trace.names[name]}"))
        if last is None or end >= last:
            last, before = end, trace.names[name]
    return found


def test_the_rows_are_the_figures_of_the_report() -> None:
    shown = window("eager")
    device = shown.report.devices[0]
    lines = drawn(GapClassesPanel, view_of(shown), BRUSHES[0], 116, 20)
    for name, total in device.gaps.items():
        found = [line for line in lines if f" {name} " in line]
        assert len(found) == (total.count > 0)
        for line in found:
            for text in (
                count(total.count),
                duration(total.total_ns),
                percent(total.total_ns / device.window_ns),
                duration(total.max_ns),
            ):
                assert f" {text}" in line
    assert f" {duration(device.idle_ns)} " in lines[1]


@pytest.mark.parametrize("height", [2, 4, 6, 20])
def test_classes_without_a_row_are_counted(height: int) -> None:
    panel = GapClassesPanel(BRUSHES[0], view_of(window("eager")))
    sheet = panel.draw(panel._data, 116, height)
    every = [line for line in panel._data.lines if not line.sub]
    hidden = len(every) - sum(line in every for line in panel._shown)
    assert sheet.note == (f"{hidden} more · " if hidden else "") + "whole window"
    assert (hidden > 0) == (height < len(every) + 1)


async def test_all_gaps_are_listed_the_longest_first(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4", "z")
        lengths = sorted((length for length, _ in idle_of("eager")), reverse=True)
        lines = text_of(app).splitlines()
        title = next(row for row, line in enumerate(lines) if f"Gaps {len(lengths):,} " in line)
        for length, line in zip(lengths, lines[title + 2 : title + 8], strict=False):
            assert f" {duration(length)} " in line
        await press(pilot, "end")
        gaps = app._painter.shown().window.analysis.gaps
        assert gaps.length_ns[selection(app).pick.row] == lengths[-1]


async def test_a_class_and_a_bucket_filter_the_list(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4", "tab", "down", "down")
        total = app._painter.shown().window.report.devices[0].gaps["launch_call"]
        assert selection(app).gaps == GapFilter("launch_call")
        assert f"Gaps {total.count:,}: launch_call" in text_of(app)
        await press(pilot, "right", "right")
        bound, number = total.histogram[1]
        assert selection(app).gaps == GapFilter("launch_call", bucket(bound))
        assert f"Gaps {number:,}: launch_call" in text_of(app)
        await press(pilot, "escape")
        assert selection(app) == Selection()
        assert f"Gaps {len(idle_of('eager')):,} " in text_of(app)


async def test_gaps_are_grouped_and_enter_unfolds_a_group(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4", "enter")
        panel = app.query_one(GapListPanel)
        view = app._painter.shown()
        window = view.window
        groups = window.report.gap_groups
        first = groups[0]
        assert len(groups) == window.report.gap_group_count < len(window.analysis.gaps) / 8
        assert f"{len(groups)} groups" in text_of(app)
        assert selection(app).pick == GapGroupPick(first.gap_class, first.prev, first.next)
        assert f"{duration(first.total_ns)} idle: {group_cause(first)}" in text_of(app)
        assert len(panel._order) == len(groups) + first.count
        # The gaps of a group are below it, however it is sorted, and add up to it.
        for column in range(len(panel._shown.columns)):
            for _ in range(2):
                panel.sort_by(column)
                order = list(panel._order)
                at = order.index(0)
                below = [row - len(groups) for row in order[at + 1 : at + 1 + first.count]]
                assert sorted(below) == list(range(first.count))
                rows = panel._shown.gaps.gaps[below]
                assert int(window.analysis.gaps.length_ns[rows].sum()) == first.total_ns
        panel.sort_by(None)
        await press(pilot, "down", "enter")
        view = app._painter.shown()
        lengths = window.analysis.gaps.length_ns
        assert view.page == "timeline"
        assert lengths[view.selection.pick.row] == first.max_ns
        # The group of a gap that was chosen elsewhere is open.
        await press(pilot, "G", "enter")
        longest = app._painter.shown().selection.pick
        place = panel._order[panel._cursor]
        assert panel._shown.key(place) == panel._shown.gaps.key_of(longest.row)
        await press(pilot, "z")
        assert len(panel._order) == len(lengths)
        assert panel._cursor_key == panel._shown.key_of(longest.row)
        await press(pilot, "z", "left", "home", "left", "escape")
        assert len(panel._order) == len(groups)
        assert "s sort" in text_of(app)
        await press(pilot, "5", "down", "down", "g")
        inside = panel._shown._groups.table.rows
        within = window.analysis.ranges.ops_within("decode_step/model/layer.*")
        assert sum(group.count for group in inside) == int(within[window.analysis.gaps.next].sum())


async def test_a_range_narrows_both(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "5", "down", "down", "g")
        view = app._painter.shown()
        assert (view.page, view.selection.within) == ("gaps", "decode_step/model/layer.*")
        within = view.window.analysis.ranges.ops_within("decode_step/model/layer.*")
        number = int(within[view.window.analysis.gaps.next].sum())
        assert f"Gaps {number:,}: in decode_step/model/layer.*" in text_of(app)
        await press(pilot, "escape", "escape")
        assert selection(app).within is None


async def test_the_list_is_searched_and_sorted(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4", "z", "f", *"argmax", "enter")
        found = sum("argmax" in names.lower() for _, names in idle_of("eager"))
        assert found > 0
        assert f" {found:,} of {len(idle_of('eager')):,}" in text_of(app)
        await press(pilot, "down", "tab", "escape")
        assert "filter: argmax" not in text_of(app)
        assert f"/{len(idle_of('eager')):,} " in text_of(app)
        assert selection(app).pick is not None
        await press(pilot, "escape")
        assert selection(app).pick is None


@pytest.mark.parametrize("text", ["[[a", "[[a]", "a||b", "[a--b]", "(", "*", "\\"])
def test_any_text_is_a_pattern_and_warns_of_nothing(text: str) -> None:
    smart_pattern(text).search("nvjet_sm90_tst")


async def test_a_trace_without_gpu_activity_has_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(document([event("cpu_op", "aten::mm", 0, 100, 1, 1)]))
    app = app_of(path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for keys in (("4",), ("tab", "down"), ("j", "l", "l")):
            await press(pilot, *keys)
            assert text_of(app).count("no GPU activity in this trace") >= 1


async def test_a_trace_without_steps_or_launches_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_bytes(document([op(0, 1_000), op(5_000, 6_000), op(6_500, 7_000)]))
    app = app_of(path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "4", "tab", "right", "greater_than_sign", "number_sign")
        assert "Gaps" in text_of(app)
        assert "unlinked" in text_of(app)
        assert app._painter.shown().window.step is None
        assert [notice.message for notice in app._notifications] == [NO_STEPS] * 2


def test_gaps_of_several_gpus_say_which_one(foreign_traces: Path) -> None:
    shown = analyse_files([foreign_traces / "h100_2gpu_1s.sqlite"], 0.0)
    assert len(shown.report.devices) == 2
    panel = single_gaps(shown)
    panel.sort_by(len(panel._shown.columns) - 1)
    order = [panel._shown.key(row)[1] for row in panel._order]
    assert len(order) == sum(device.all_gaps.count for device in shown.report.devices)
    devices = shown.analysis.gaps.device[order]
    assert (devices[1:] >= devices[:-1]).all()
    assert {"GPU 0", "GPU 1"} == {
        panel._shown.cells(row, BRUSHES[0], 20)[-1].text for row in range(0, 400, 7)
    }
    lines = drawn(GapClassesPanel, view_of(shown), BRUSHES[0], 120, 20)
    assert f" {duration(sum(device.idle_ns for device in shown.report.devices))} " in lines[1]


def test_a_step_on_several_gpus_says_what_is_added_up_and_when_none_was_busy(tmp_path) -> None:
    path = tmp_path / "two.json"
    events = [span(0, 9_000, "decode_step")]
    for correlation, (start, end, device) in enumerate(
        [(10_000, 20_000, 0), (60_000, 70_000, 0), (15_000, 30_000, 1), (50_000, 55_000, 1)], 1
    ):
        events.append(call(correlation * 1_000, correlation * 1_000 + 500, correlation))
        events.append(op(start, end, correlation, device=device))
    path.write_bytes(document(events))
    shown = window_of_step(analyse_files([path], 0.0), 0)
    view = view_of(shown)
    panel = GapClassesPanel(BRUSHES[0], view)
    place = panel.draw(panel.pick(view), 116, 20).note
    assert place == "step 0, decode · 2 GPUs added up · none busy for 25.0 µs"
    assert " 60.0 µs " in drawn(GapClassesPanel, view, BRUSHES[0], 116, 20)[1]
    for row in range(2):
        (line,) = (line for line in gap_lines(shown, row) if line.label == "step")
        assert "GPU span" in line.text
        assert "idle time" not in line.text


def test_different_kernels_have_different_names_in_the_list() -> None:
    rows = single_gaps(window("eager"))._shown
    shown = {}
    for row in range(len(rows)):
        cells = rows.cells(row, BRUSHES[0], 24)
        gap = rows.report(row)
        for name, cell in ((gap.prev, cells[3]), (gap.next, cells[4])):
            assert shown.setdefault(cell.text, name) == name
    assert len(shown) > 20


async def test_a_live_window_is_held_while_one_of_its_gaps_is_chosen(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    first = scripted.write_trace(tmp_path / "first.json")
    later = tmp_path / "later.json"
    later.write_bytes(document([op(0, 1_000), op(5_000, 6_000)]))
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, scripted.ready(first))
        await press(pilot, "4", "z", "end")
        assert selection(session.app).pick is not None
        number = len(session.app._painter.shown().window.analysis.gaps)
        assert f"Gaps {number} " in text_of(session.app)
        session.link.say(scripted.ready(later))
        await settle(pilot)
        assert f"Gaps {number} " in text_of(session.app)
        await press(pilot, "escape")
        assert "Gaps 1 " in text_of(session.app)
        await press(pilot, "down", "enter")
        assert selection(session.app).pick == GapPick(0)


def test_details_of_a_gap_name_every_part_and_what_to_do() -> None:
    shown = window("eager")
    for gap in shown.report.largest_gaps:
        row = int((shown.analysis.gaps.length_ns == gap.length_ns).nonzero()[0][0])
        lines = list(gap_lines(shown, row))
        said = {line.label: line.text for line in lines}
        for name, ns in gap.parts.items():
            assert said[name].startswith(duration(ns))
        assert said["after"] == gap.prev
        assert said["before"] == gap.next
        assert said["→"]
        assert lines[0].text == f"{duration(gap.length_ns)} idle: {gap.gap_class}"


@given(
    st.sampled_from(["eager", "fused+graph"]),
    st.sampled_from(BRUSHES),
    st.sampled_from([GapFilter(), GapFilter("host_wait", (128, 256)), GapFilter("nonsense")]),
    st.integers(1, 300),
    st.integers(1, 60),
)
@settings(max_examples=80, deadline=None)
def test_every_size_is_drawn_and_nothing_is_wider_than_its_panel(
    variant, brush, chosen, width, height
) -> None:
    view = view_of(window(variant), Selection(gaps=chosen))
    if chosen.gap_class == "nonsense":
        view = view_of(window(variant), Selection(within="no/such"))
    for kind in (GapClassesPanel, GapListPanel):
        lines = drawn(kind, view, brush, width, height)
        assert lines
        if width >= 40:
            assert len(lines) == 1 or max(map(len, lines)) <= width


@pytest.mark.parametrize("width", range(40, 130, 3))
def test_figures_never_touch(width: int) -> None:
    lines = drawn(GapClassesPanel, view_of(window("eager")), BRUSHES[0], width, 20)
    totals = window("eager").report.devices[0]
    assert "length" in lines[0]
    assert "\u2026" not in lines[0]
    line = next(line for line in lines if " launch_call " in line)
    assert f" {duration(totals.gaps['launch_call'].total_ns)}" in line
    assert not re.search(r"[µm]s\d|%\d|\d{4}\.\d", line)


# Rows


VALUES = {
    name: attrgetter(name)
    for name in ("gap_class", "length_ns", "prev", "next", "call", "step", "range", "device")
}


def gap_rows(drawn_window: tuple[list[Op], list[Call]]) -> GapRows:
    analysis = analysed(*drawn_window)
    shown = Window(Path("trace.json"), analysis, find_tracks(analysis), 0.0)
    return GapRows(shown, longest_first(analysis, np.arange(len(analysis.gaps))))


@given(windows(), st.data(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_rows_are_ordered_as_by_hand(drawn_window, data: st.DataObject, down: bool) -> None:
    rows = gap_rows(drawn_window)
    keys = [column.key for column in rows.columns]
    key = data.draw(st.sampled_from([key for key in keys if key in VALUES]))
    values = [VALUES[key](rows.report(row)) for row in range(len(rows))]
    known = [row for row, value in enumerate(values) if value is not None]
    lost = [row for row, value in enumerate(values) if value is None]
    known.sort(key=lambda row: values[row], reverse=down)
    order = rows.order(keys.index(key), down)
    assert list(order) == known + lost
    assert not any(isinstance(one, int) for one in gc.get_referents(order))
    assert [rows.place(rows.key(row)) for row in range(len(rows))] == list(range(len(rows)))
    assert rows.place(rows.key_of(-1)) is rows.place(rows.key_of(10**6)) is None


@given(windows(), st.sampled_from(("kernel", "cuda(Malloc|Graph)", "host_wait|unlinked", "x^")))
@settings(max_examples=30, deadline=None)
def test_a_search_finds_the_gaps_whose_words_match(drawn_window, text: str) -> None:
    rows, pattern = gap_rows(drawn_window), re.compile(text)
    expected = set()
    for row in range(len(rows)):
        gap = rows.report(row)
        words = (gap.gap_class, gap.prev, gap.next, gap.call or "", gap.range or "")
        words += (short_name(gap.prev), short_name(gap.next))
        if any(pattern.search(word) for word in words):
            expected.add(row)
    assert rows.matching(pattern) == expected
