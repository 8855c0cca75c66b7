"""Page 2: the tracks of a window, and the keys that move through it."""

import random
import re

import pytest

from decodescope.tui.actions.pages import NO_STEPS
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.picks import GapPick, OpPick, SpanPick
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.timeline.timeline_panel import TimelinePanel
from tests.helpers.app.recorded import app_of, press
from tests.helpers.app.timeline import opened, pick, saved, title
from tests.helpers.kineto_events import call, op
from tests.helpers.scripted import StillClock, ready, settle, text_of, write_trace


async def test_the_page_shows_the_median_step_with_all_its_tracks(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        shown = text_of(app)
    assert " step 0  " in shown
    for track in ("h-range", "host", "range", "str 7", "gaps", "map"):
        assert re.search(rf"│ [ ▸]{re.escape(track)}\b", shown)
    assert "■ host_wait" in shown


async def test_a_trace_without_step_markers_has_a_timeline(tmp_path):
    """It used to say that the trace marks no steps."""
    path = saved(
        tmp_path / "it.json",
        call(0, 5, 1),
        op(1_000, 4_000, 1, name="gemm_kernel"),
        op(9_000, 9_500, 2, name="norm_kernel"),
    )
    app = app_of(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        shown = text_of(app)
        await press(pilot, "greater_than_sign")
        notice = [n.message for n in app._notifications]
    assert "gemm" in shown
    assert "5.00 µs" in shown
    assert notice == [NO_STEPS]


async def test_two_gpus_have_tracks_of_their_own(tmp_path):
    """They used to be drawn as one."""
    path = saved(
        tmp_path / "it.json",
        call(0, 5, 1),
        op(1_000, 4_000, 1, name="one", device=0),
        op(2_000, 6_000, 2, name="other", device=1, stream=13),
    )
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
    assert everything == panel._look.tracks.world
    assert closest.span_ns == columns
    assert fitted == home


async def test_steps_one_after_another(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        seen = []
        for key in (*["greater_than_sign"] * 3, *["less_than_sign"] * 3, "greater_than_sign"):
            await press(pilot, key)
            seen.append(re.search(r"step (\d)", title(app))[1])
    assert seen == ["1", "2", "2", "1", "0", "0", "1"]


async def test_gaps_by_length_and_in_order(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        gaps = panel._look.tracks.analysis.gaps
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


async def test_slices_of_a_track_and_tracks(trace_file):
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
        of_part, part = pick(app), panel._look.track
        while panel._look.track.key.kind == "part":
            await press(pilot, "down")
        await press(pilot, "full_stop")
        below = pick(app)
        track = panel._look.track.title
    assert isinstance(first, OpPick)
    assert second == OpPick(first.row + 1)
    assert back == first
    assert part.key.kind == "part"
    assert of_part.row in part.slices.row
    assert track == "gaps"
    assert isinstance(below, GapPick)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
async def test_search_moves_from_match_to_match(trace_file, size):
    app = app_of(trace_file)
    async with app.run_test(size=size) as pilot:
        panel = await opened(pilot)
        await press(pilot, "0", "c", "slash", *"mulf", "enter")
        names = panel._look.tracks.analysis.trace
        first = pick(app)
        await press(pilot, "n")
        second = pick(app)
        await press(pilot, "N")
        shown = text_of(app)
        marked = {at for at, char in enumerate(found_row(shown, panel)) if char == "▼"}
        begun = panel._look.edges_ns.searchsorted(mulf_starts(panel), side="right")
        await press(pilot, "slash", *"nothing-like-it", "enter")
        none = text_of(app)
        kept = pick(app)
        await press(pilot, "escape")
        assert "nothing-like-it" not in text_of(app)
        assert pick(app) == kept
    assert "MulFunctor" in names.names[names.ops.name[first.row]]
    assert second.row > first.row
    assert re.search(r"Timeline +/mulf \d+/36 ", shown)
    assert marked == set((begun - 1).tolist()) & set(range(panel._columns))
    assert len(marked) > 1
    assert "no match" in none


def found_row(shown: str, panel: TimelinePanel) -> str:
    """The cells of the columns of the row of matches."""
    (line,) = (line for line in shown.splitlines() if re.match(r"[│ ]*find ", line))
    start = panel.inset + panel._gutter
    return line[start : start + panel._columns]


def mulf_starts(panel: TimelinePanel) -> list[int]:
    tracks = panel._look.tracks
    return [
        start
        for track in tracks.tracks
        if track.key.kind != "part"
        for start, label in zip(track.slices.start_ns, track.slices.label, strict=True)
        if label >= 0 and "mulf" in tracks.names[label].lower()
    ]


async def test_a_span_is_measured_between_its_ends(trace_file):
    app = app_of(trace_file)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, "full_stop")
        start, until = panel._at_ns, panel._look.shown[1]
        await press(pilot, "left_square_bracket")
        begun = pick(app)
        await press(pilot, "full_stop", "full_stop", "full_stop")
        end = panel._at_ns
        await press(pilot, "right_square_bracket")
        measured = pick(app)
        shown = text_of(app)
        await press(pilot, "comma", "left_square_bracket")
        cut, later = pick(app), panel._at_ns
        await press(pilot, "escape", "right_square_bracket")
        alone = pick(app)
    assert begun == SpanPick(start, until)
    assert measured == SpanPick(start, end)
    assert "╭─ Span ─" in shown
    assert re.search(r"ops +3\b", shown)
    assert re.search(r"launches +3\b", shown)
    assert "[ ] measure" in shown
    assert cut == SpanPick(later, end)
    assert start < later < end
    assert alone == SpanPick(panel._look.shown[0], later)
    assert not any("m" in command.key.split(",") for command in TimelinePanel.COMMANDS)


async def test_a_measure_outlives_the_next_window_of_a_live_run(session, tmp_path):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(write_trace(tmp_path / "one.json")))
        panel = await opened(pilot)
        await press(pilot, "left_square_bracket")
        start, window = panel._time(panel._look), session.app._painter.shown().window
        session.link.say(ready(write_trace(tmp_path / "two.json")))
        await settle(pilot)
        held = session.app._painter.shown().window
        await press(pilot, "full_stop", "right_square_bracket")
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


async def test_another_file_is_looked_at_afresh(tmp_path):
    one = write_trace(tmp_path / "one.json")
    other = saved(tmp_path / "two.json", call(0, 5, 1), op(1_000, 4_000, 1), op(9_000, 9_500, 2))
    app = DecodescopeApp(TraceSource((one, other)), None, StillClock(), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = await opened(pilot)
        await press(pilot, *["plus"] * 8)
        app._feeds.select_file(1)
        await settle(pilot)
        look = panel._look
    assert look.shown == look.tracks.home == (1_000, 9_500)


async def test_a_later_window_keeps_zoom_and_place(session, tmp_path):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(write_trace(tmp_path / "one.json")))
        panel = await opened(pilot)
        await press(pilot, "plus", "plus", "left")
        before, home = panel._look.shown, panel._look.tracks.home
        session.link.say(ready(write_trace(tmp_path / "two.json")))
        await settle(pilot)
        assert panel._look.tracks is session.app._painter.shown().window.tracks
        after, later = panel._look.shown, panel._look.tracks.home
    assert [at - home[0] for at in before] == [at - later[0] for at in after]


@pytest.mark.parametrize("size", [(120, 40), (60, 16)])
async def test_keys_and_clicks_at_random(size, trace_file):
    draw = random.Random(size[0])
    keys = [key for command in TimelinePanel.COMMANDS for key in command.key.split(",")] + [
        "escape"
    ] * 3
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
        assert panel._look.tracks.world[0] <= start < end <= panel._look.tracks.world[1]
    assert app.crash is None
