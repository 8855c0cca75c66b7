"""What the mouse selects on the timeline, and how it shows what is selected elsewhere."""

import re

from decodescope.tui.model.picks import GapPick, KernelPick, OpPick, RangePick, Selection, SpanPick
from decodescope.tui.panels.messages import Choose, Narrow
from decodescope.tui.panels.timeline.timeline_panel import TimelinePanel
from tests.helpers.app.recorded import app_of, press
from tests.helpers.app.timeline import opened, pick, saved
from tests.helpers.kineto_events import call, event, op, span
from tests.helpers.scripted import settle, text_of


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
        column = x - panel.region.x - panel.inset - panel._gutter
        begin, _ = panel._look.time_of(column)
        _, end = panel._look.time_of(column + 20)
        await pilot.mouse_down(offset=(x, y))
        await pilot.hover(offset=(x + 20, y))
        await pilot.mouse_up(offset=(x + 20, y))
        await settle(pilot)
        dragged = pick(app)
    assert isinstance(clicked, OpPick)
    assert dragged == SpanPick(begin, end)


async def test_a_call_of_the_host_is_named_in_the_details(tmp_path):
    path = saved(
        tmp_path / "it.json",
        event("cpu_op", "aten::mm", 0, 9_000, 4242, 1),
        call(1_000, 8_000, 1, name="cudaStreamSynchronize"),
        call(8_500, 8_600, 2),
        op(9_000, 9_900, 2),
    )
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
        await pilot.click(offset=(panel.region.x + panel.inset + panel._gutter + 20, y))
        await settle(pilot)
        look, columns = panel._look, panel._columns
    start, end = look.tracks.world
    middle = sum(look.shown) / 2
    assert abs((middle - start) / (end - start) - 20.5 / columns) < 1 / columns


async def test_the_wheel_zooms_at_the_pointer(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        x = panel.region.x + panel.inset + panel._gutter + 70
        before = panel._look.time_of(70)
        await pilot._post_mouse_events([_scroll_up()], offset=(x, panel.region.y + 4))
        await settle(pilot)
        after = panel._look.time_of(70)
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
        gaps = look.tracks.analysis.gaps
        begin, end = int(gaps.start_ns[3]), int(gaps.end_ns[3])
    assert look.shown[0] <= begin < end <= look.shown[1]
    assert look.track.key.kind == "gap"
    assert look.column_of(end) - look.column_of(begin) >= 2


async def test_a_kernel_and_a_range_chosen_elsewhere_stand_out(tmp_path):
    path = saved(
        tmp_path / "it.json",
        span(0, 50, "attention"),
        span(60, 90, "mlp"),
        call(10, 20, 1),
        call(70, 80, 2),
        op(1_000, 4_000, 1, name="gemm"),
        op(6_000, 9_000, 2, name="norm"),
    )
    app = app_of(path)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        look = panel._look
        stream = next(i for i, track in enumerate(look.tracks.tracks) if track.key.kind == "stream")
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
        panel.post_message(Choose(KernelPick("only_2")))
        await settle(pilot)
        after = panel._look.shown
    assert before == (100, 10_100)
    assert after[0] <= 20_100 < 20_900 <= after[1]


async def test_enter_opens_the_kernel_and_narrows_to_a_range(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "full_stop")
        launch = pick(app).row
        await press(pilot, "enter")
        view = app._painter.shown()
        trace = view.window.analysis.trace
        assert view.page == "kernels"
        assert view.selection.pick == KernelPick(trace.names[trace.ops.name[launch]])
        await press(pilot, "2", "up", "comma", "enter")
        view = app._painter.shown()
    assert panel._look.track.key.kind == "range"
    assert view.selection == Selection(RangePick("decode_step"), "decode_step")


async def test_tracks_scroll_and_the_mouse_finds_them(tmp_path):
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
        trace = panel._look.tracks.analysis.trace
        clicked = trace.names[trace.ops.name[pick(app).row]]
    assert clicked == "on_14"
    assert "str 0" not in shown
    assert re.search(r"tracks \d+\u2013\d+ of 23", shown)
