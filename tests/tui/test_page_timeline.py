"""Page 2: the lanes of a window, its keys and the mouse, in the app and drawn at every size."""

import random
import re
from pathlib import Path

import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.formatting import duration
from decodescope.analyzer.lanes.build import find_lanes
from decodescope.tui.app import DecodescopeApp
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
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.messages import Choose, Narrow
from decodescope.tui.panels.panel import Brush, Empty
from decodescope.tui.panels.timeline.keys import COMMANDS
from decodescope.tui.panels.timeline.panel import TimelinePanel
from decodescope.tui.style.glyphs import ASCII, UNICODE
from decodescope.tui.style.palette import Inks, themed_inks
from decodescope.tui.style.terminal import TerminalTraits
from tests.helpers.kineto_events import call, document, event, op, span, trace_of
from tests.helpers.scripted import StillClock, ready, settle, text_of, write_trace

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]


def app_of(path: Path, traits: TerminalTraits | None = None) -> DecodescopeApp:
    return DecodescopeApp(TraceSource((path,)), traits, StillClock(), path.parent)


async def opened(pilot) -> TimelinePanel:
    await settle(pilot)
    await pilot.press("2")
    await settle(pilot)
    return pilot.app.query_one(TimelinePanel)


async def press(pilot, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def pick(app: DecodescopeApp):
    return app._painter.shown()[0].selection.pick


def saved(path: Path, *events, **keys) -> Path:
    path.write_bytes(document(list(events), **keys))
    return path


def title(app: DecodescopeApp) -> str:
    return next(line for line in text_of(app).splitlines() if "─ Timeline  " in line)


async def test_the_page_shows_the_last_step_with_all_its_lanes(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        shown = text_of(app)
    assert "step ◂ 3/3 ▸" in shown
    for lane in ("h-range", "host", "range", "str 7", "gaps", "map"):
        assert re.search(rf"│ [ ▸]{re.escape(lane)}\b", shown)
    assert "■ host_wait" in shown


async def test_a_trace_without_step_markers_has_a_timeline(tmp_path):
    """It used to say that the trace marks no steps."""
    path = saved(tmp_path / "it.json", call(0, 5, 1), op(1_000, 4_000, 1, name="gemm_kernel"),
                 op(9_000, 9_500, 2, name="norm_kernel"))  # fmt: skip
    app = app_of(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        shown = text_of(app)
        await press(pilot, "greater_than_sign")
        notice = [n.message for n in app._notifications]
    assert "gemm_kernel" in shown
    assert "5.00 µs" in shown
    assert notice == ["This trace marks no steps."]


async def test_two_gpus_have_lanes_of_their_own(tmp_path):
    """They used to be drawn as one."""
    path = saved(tmp_path / "it.json", call(0, 5, 1), op(1_000, 4_000, 1, name="one", device=0),
                 op(2_000, 6_000, 2, name="other", device=1, stream=13))  # fmt: skip
    app = app_of(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        live = text_of(app)
        await opened(pilot)
        lines = text_of(app).splitlines()
    assert "2 GPU ops, here those of GPU 1" in live
    assert "g1 str 13" in live
    assert "g0 str 7" not in live
    (first,) = (line for line in lines if "g0 str 7" in line)
    (second,) = (line for line in lines if "g1 str 13" in line)
    assert "one" in first
    assert "other" in second


async def test_zoom_pan_and_everything(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        home = panel._look.shown
        await press(pilot, "plus")
        closer = panel._look.shown
        await press(pilot, "right")
        moved = panel._look.shown
        await press(pilot, "0")
        everything = panel._look.shown
        await press(pilot, *["plus"] * 40)
        closest = panel._look.viewport
        columns = panel._columns
        await press(pilot, "f")
        fitted = panel._look.shown
    length = home[1] - home[0]
    assert abs(2 * (closer[1] - closer[0]) - length) <= 2
    assert moved[0] - closer[0] == (closer[1] - closer[0]) // 4
    assert everything == panel._look.lanes.world
    assert closest.span_ns == columns
    assert fitted == home


async def test_steps_one_after_another(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        seen = []
        for key in ("less_than_sign", "less_than_sign", "less_than_sign", "greater_than_sign"):
            await press(pilot, key)
            seen.append(re.search(r"step ◂ (\d)/3", title(app))[1])
    assert seen == ["2", "1", "1", "2"]


async def test_gaps_by_length_and_in_order(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        gaps = panel._look.lanes.analysis.gaps
        largest = []
        for _ in range(4):
            await press(pilot, "G")
            largest.append(pick(app).row)
        shown = text_of(app)
        await press(pilot, "f", "minus", "minus", "minus", "g")
        following = pick(app).row
    lengths = gaps.length_ns[largest].tolist()
    assert lengths == sorted(gaps.length_ns.tolist(), reverse=True)[:4]
    assert "╭─ Gap ─" in shown
    assert gaps.start_ns[following] > gaps.start_ns[largest[-1]]


async def test_slices_of_a_lane_and_lanes(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "full_stop")
        first = pick(app)
        await press(pilot, "full_stop")
        second = pick(app)
        await press(pilot, "comma")
        back = pick(app)
        await press(pilot, "down", "full_stop")
        below = pick(app)
        lane = panel._look.lane.title
    assert isinstance(first, OpPick)
    assert second == OpPick(first.row + 1)
    assert back == first
    assert lane == "gaps"
    assert isinstance(below, GapPick)


async def test_search_moves_from_match_to_match(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "0", "slash", *"mulf", "enter")
        names = panel._look.lanes.analysis.trace
        first = pick(app)
        await press(pilot, "n")
        second = pick(app)
        await press(pilot, "N")
        shown = text_of(app)
        await press(pilot, "slash", *"nothing-like-it", "enter")
        none = text_of(app)
    assert "MulFunctor" in names.names[names.ops.name[first.row]]
    assert second.row > first.row
    assert re.search(r"/mulf \d+/36", shown)
    assert "no match" in none


async def test_a_measure_and_a_span_by_its_ends(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "full_stop")
        start = panel._at_ns
        await press(pilot, "m", "full_stop", "full_stop", "full_stop")
        end = panel._at_ns
        going = title(app)
        await press(pilot, "m")
        measured = pick(app)
        shown = text_of(app)
        await press(pilot, "left_square_bracket")
        cut = pick(app)
    assert f"measured {duration(end - start)}" in going
    assert measured == SpanPick(start, end)
    assert "╭─ Span ─" in shown
    assert re.search(r"ops +3\b", shown)
    assert re.search(r"launches +3\b", shown)
    assert cut.end_ns == end


async def test_a_measure_outlives_the_next_window_of_a_live_run(session, tmp_path):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(write_trace(tmp_path / "one.json")))
        panel = await opened(pilot)
        await press(pilot, "m")
        start, window = panel._measured_from, session.app._painter.shown()[0].window
        session.link.say(ready(write_trace(tmp_path / "two.json")))
        await settle(pilot)
        held = session.app._painter.shown()[0].window
        await press(pilot, "full_stop", "m")
        measured = pick(session.app)
    assert held is window
    assert measured == SpanPick(start, panel._at_ns)


async def test_long_gaps_are_compressed_and_it_says_so(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        before = title(app)
        await press(pilot, "c")
        on = title(app)
        limit = panel._look.time.limit_ns
        await press(pilot, "c")
        off = title(app)
    assert "cut short" not in before
    assert "cut short" in on
    assert limit > 0
    assert off == before


async def test_a_click_selects_and_a_drag_selects_a_span(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "str 7" in line)
        x = next(i for i, char in enumerate(lines[y]) if i > 12 and char not in " │")
        await pilot.click(offset=(x, y))
        await settle(pilot)
        clicked = pick(app)
        column = x - panel.region.x - panel._inset - panel._gutter
        begin, _ = panel._look.time_of(column, panel._columns)
        _, end = panel._look.time_of(column + 20, panel._columns)
        await pilot.mouse_down(offset=(x, y))
        await pilot.hover(offset=(x + 20, y))
        await pilot.mouse_up(offset=(x + 20, y))
        await settle(pilot)
        dragged = pick(app)
    assert isinstance(clicked, OpPick)
    assert dragged == SpanPick(begin, end)


async def test_a_call_of_the_host_is_named_in_the_details(tmp_path):
    path = saved(
        tmp_path / "it.json", event("cpu_op", "aten::mm", 0, 9_000, 4242, 1),
        call(1_000, 8_000, 1, name="cudaStreamSynchronize"), call(8_500, 8_600, 2),
        op(9_000, 9_900, 2),
    )  # fmt: skip
    app = app_of(path)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await press(pilot, "0")
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "cudaStreamSynchronize" in line)
        await pilot.click(offset=(lines[y].index("Synchronize"), y))
        await settle(pilot)
        shown = text_of(app)
    assert pick(app) == SpanPick(1_000, 8_000)
    assert "halfway in aten::mm ▸ cudaStreamSynchronize" in shown


async def test_a_click_in_the_map_moves_there(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        y = next(i for i, line in enumerate(text_of(app).splitlines()) if "map" in line)
        await pilot.click(offset=(panel.region.x + panel._inset + panel._gutter + 20, y))
        await settle(pilot)
        look, columns = panel._look, panel._columns
    start, end = look.lanes.world
    middle = sum(look.shown) / 2
    assert abs((middle - start) / (end - start) - 20.5 / columns) < 1 / columns


async def test_the_wheel_zooms_at_the_pointer(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        x = panel.region.x + panel._inset + panel._gutter + 70
        before = panel._look.time_of(70, panel._columns)
        await pilot._post_mouse_events([_scroll_up()], offset=(x, panel.region.y + 4))
        await settle(pilot)
        after = panel._look.time_of(70, panel._columns)
    assert after[1] - after[0] < before[1] - before[0]
    assert before[0] <= sum(after) // 2 <= before[1]


def _scroll_up():
    from textual.events import MouseScrollUp

    return MouseScrollUp


async def test_a_gap_chosen_elsewhere_moves_the_timeline_to_it(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        app.query_one(TimelinePanel).post_message(Choose(GapPick(3)))
        await settle(pilot)
        look = panel._look
        gaps = look.lanes.analysis.gaps
        begin, end = int(gaps.start_ns[3]), int(gaps.end_ns[3])
    assert look.shown[0] <= begin < end <= look.shown[1]
    assert look.lane.key.kind == "gap"
    assert look.column_of(end, panel._columns) - look.column_of(begin, panel._columns) >= 2


async def test_a_kernel_and_a_range_chosen_elsewhere_stand_out(tmp_path):
    path = saved(
        tmp_path / "it.json", span(0, 50, "attention"), span(60, 90, "mlp"),
        call(10, 20, 1), call(70, 80, 2),
        op(1_000, 4_000, 1, name="gemm"), op(6_000, 9_000, 2, name="norm"),
    )  # fmt: skip
    app = app_of(path)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        look = panel._look
        stream = next(i for i, lane in enumerate(look.lanes.lanes) if lane.key.kind == "stream")
        panel.post_message(Choose(KernelPick("norm")))
        await settle(pilot)
        kernel = panel._look.marks[stream].tolist()
        panel.post_message(Choose(RangePick("attention")))
        await settle(pilot)
        of_range = panel._look.marks[stream].tolist()
        panel.post_message(Choose(None))
        panel.post_message(Narrow("mlp"))
        await settle(pilot)
        within = panel._look.marks[stream].tolist()
        panel.post_message(Narrow(None))
        await settle(pilot)
        assert panel._look.marks is None
    assert (kernel, of_range, within) == ([0, 0, 1], [0, 1, 1], [0, 0, 1])


async def test_a_kernel_outside_of_what_is_visible_comes_into_view(tmp_path):
    steps = [
        one
        for step in range(3)
        for one in (
            span(step * 10_000, step * 10_000 + 900, f"decode_step_{step}"),
            call(step * 10_000 + 10, step * 10_000 + 20, step + 1),
            op(step * 10_000 + 100, step * 10_000 + 900, step + 1, name=f"only_{step}"),
        )
    ]
    app = app_of(saved(tmp_path / "it.json", *steps))
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        before = panel._look.shown
        panel.post_message(Choose(KernelPick("only_0")))
        await settle(pilot)
        after = panel._look.shown
    assert before[0] == 20_100
    assert after[0] <= 100 < 900 <= after[1]


async def test_enter_opens_the_kernel_and_narrows_to_a_range(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "full_stop")
        launch = pick(app).row
        await press(pilot, "enter")
        view = app._painter.shown()[0]
        trace = view.window.analysis.trace
        assert view.page == "kernels"
        assert view.selection.pick == KernelPick(trace.names[trace.ops.name[launch]])
        await press(pilot, "2", "up", "comma", "enter")
        view = app._painter.shown()[0]
    assert panel._look.lane.key.kind == "range"
    assert view.selection == Selection(RangePick("decode_step"), "decode_step")


async def test_another_file_is_looked_at_afresh(tmp_path):
    one = write_trace(tmp_path / "one.json")
    other = saved(tmp_path / "two.json", call(0, 5, 1), op(1_000, 4_000, 1), op(9_000, 9_500, 2))
    app = DecodescopeApp(TraceSource((one, other)), None, StillClock(), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, *["plus"] * 8)
        app._select_file(1)
        await settle(pilot)
        look = panel._look
    assert look.shown == look.lanes.home == (1_000, 9_500)


async def test_lanes_scroll_and_the_mouse_finds_them(tmp_path):
    events = [call(0, 5, 1)]
    events += [op(100, 900, 1, name=f"on_{stream}", stream=stream) for stream in range(20)]
    app = app_of(saved(tmp_path / "it.json", *events))
    async with app.run_test(size=(60, 16)) as pilot:
        panel = await opened(pilot)
        await press(pilot, *["down"] * 14)
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "str 14" in line)
        await pilot.click(offset=(30, y))
        await settle(pilot)
        shown = text_of(app)
        trace = panel._look.lanes.analysis.trace
        clicked = trace.names[trace.ops.name[pick(app).row]]
    assert clicked == "on_14"
    assert "str 0" not in shown
    assert re.search(r"lanes \d+\u2013\d+ of 23", shown)


async def test_a_later_window_keeps_zoom_and_place(session, tmp_path):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(write_trace(tmp_path / "one.json")))
        panel = await opened(pilot)
        await press(pilot, "plus", "plus", "left")
        before, home = panel._look.shown, panel._look.lanes.home
        session.link.say(ready(write_trace(tmp_path / "two.json")))
        await settle(pilot)
        assert panel._look.lanes is session.app._painter.shown()[0].window.lanes
        after, later = panel._look.shown, panel._look.lanes.home
    assert [at - home[0] for at in before] == [at - later[0] for at in after]


@pytest.mark.parametrize("size", [(120, 40), (60, 16)])
async def test_keys_and_clicks_at_random(size, trace_file):
    draw = random.Random(size[0])
    keys = [key for command in COMMANDS for key in command.key.split(",")] + ["escape"] * 3
    app = app_of(trace_file)
    async with app.run_test(size=size) as pilot:
        panel = await opened(pilot)
        for _ in range(150):
            if draw.random() < 0.1:
                await pilot.click(offset=(draw.randrange(size[0]), draw.randrange(size[1])))
            else:
                await pilot.press(draw.choice(keys))
            app.set_focus(panel)
        await settle(pilot)
        start, end = panel._look.shown
        assert panel._look.lanes.world[0] <= start < end <= panel._look.lanes.world[1]
    assert app.crash is None


def view_of(analysis, selection: Selection = NOTHING) -> View:
    window = Window(Path("it"), analysis, find_lanes(analysis), (), 0.0)
    return View("trace", "it", window=window, selection=selection)


BRUSHES = [Brush(themed_inks({}, True), UNICODE), Brush(Inks(), UNICODE), Brush(Inks(), ASCII),
           Brush(themed_inks({}, False, few_colors=True), UNICODE, "rule")]  # fmt: skip


@pytest.mark.parametrize("brush", BRUSHES)
def test_every_size_is_drawn_and_no_row_is_too_wide(brush, trace_file):
    analysis = analyse_files([trace_file], 0.0).analysis
    picks = [None, OpPick(5), GapPick(5), KernelPick("x"), RangePick("decode_step"), SpanPick(0, 9)]
    for one in picks:
        view = view_of(analysis, Selection(one))
        panel = TimelinePanel(brush, view, Moment(0.0))
        data = panel.pick(view, Moment(0.0))
        for width, height in [(1, 1), (2, 3), (7, 2), (20, 5), (61, 12), (300, 100)]:
            sheet = panel.draw(data, width, height)
            assert len(sheet.rows) <= height
            assert all(row.cells <= max(width, 1) for row in sheet.rows)


@pytest.mark.parametrize(
    "events",
    [[], [span(0, 0, "decode_step")], [call(5, 5, 1)], [op(7, 7, 1)], [op(7, 8, 1)],
     [event("cpu_op", "aten::mm", 3, 9, 4242, 1)]],
)  # fmt: skip
def test_traces_with_almost_nothing(events):
    view = view_of(analyze(trace_of(*events)))
    panel = TimelinePanel(BRUSHES[0], view, Moment(0.0))
    data = panel.pick(view, Moment(0.0))
    if isinstance(data, Empty):
        assert "nothing" in data.hint
        return
    for width, height in [(1, 1), (30, 6), (120, 40)]:
        assert panel.draw(data, width, height).rows


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_snapshot(width, height, snap_compare, trace_file):
    async def page(pilot) -> None:
        await opened(pilot)

    assert snap_compare(app_of(trace_file), terminal_size=(width, height), run_before=page)


def test_snapshot_without_colours(snap_compare, trace_file):
    async def page(pilot) -> None:
        await opened(pilot)
        await press(pilot, "G", "f", "minus", "minus")

    app = app_of(trace_file, TerminalTraits(color=False, unicode=False))
    assert snap_compare(app, terminal_size=(80, 24), run_before=page)


def test_snapshot_of_a_zoomed_and_compressed_timeline(snap_compare, trace_file):
    async def page(pilot) -> None:
        await opened(pilot)
        await press(pilot, "c", "plus", "plus", "full_stop")

    assert snap_compare(app_of(trace_file), terminal_size=(120, 40), run_before=page)
