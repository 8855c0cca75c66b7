"""A replay in the app: it opens on its last window, and every key leads to another moment of it."""

import math
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.protocol.messages import Failure, Log, State
from decodescope.analyzer.recordings.recording import RecordingMark
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.text.formatting import rate
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Playback
from decodescope.tui.model.replaying import (
    SPEEDS,
    last_of,
    neighbour_mark,
    next_speed,
    typed_time_ns,
)
from decodescope.tui.model.sources import ReplaySource
from tests.helpers.scripted import StillClock, hello, ready, settle, stats, text_of, write_trace

NS = 1_000_000_000
MARKS = (
    RecordingMark(1 * NS, "switch", "eager"),
    RecordingMark(20 * NS, "window", "eager"),
    RecordingMark(40 * NS, "switch", "compiled"),
    RecordingMark(60 * NS, "window", "compiled"),
)


def at(second: float) -> Playback:
    return Playback(round(second * NS), 100 * NS, 1.0, "paused", MARKS)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Eager from second 1 with windows at 20 and 30, compiled from 40 with one at 60, to 100."""
    now, path = [0], tmp_path / "run.dsrec"
    with closing(RecordingWriter(path, clock_ns=lambda: now[0])) as writer:
        for second in range(101):
            now[0] = second * NS
            variant = "eager" if second < 40 else "compiled"
            if second == 0:
                writer.write(hello())
            if second in (1, 40):
                writer.write(State("running", variant))
            if second == 50:
                writer.write(Failure("a switch failed", 1, False))
            if second in (20, 30, 60):
                trace = write_trace(tmp_path / f"window-{second}.json", variant)
                writer.write(ready(trace, variant))
            writer.write(Log("info", f"second {second} "))
            writer.write(stats(second, variant, tokens_per_s=1000.0 + second))
    return path


class Opened:
    """The app on a recording."""

    def __init__(self, path: Path) -> None:
        folder = path.parent / "out"
        folder.mkdir()
        self.app = DecodescopeApp(ReplaySource(path), clock=StillClock(), folder=folder)

    @property
    def view(self):
        return self.app.view()

    async def until(self, pilot, condition) -> None:
        for _ in range(400):
            await settle(pilot)
            if condition():
                return
        raise AssertionError(text_of(self.app))

    def second(self) -> float:
        return self.view.playback.position_ns / NS


async def test_it_opens_on_the_last_window_with_figures_and_history(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        shown = text_of(opened.app)
        samples = opened.view.samples
    assert "paused" in shown.splitlines()[0]
    assert "paused 1:00.0 / 1:40.0" in shown
    assert f"{rate(1060.0)} tok/s" in shown
    assert "host-bound" in shown
    assert [sample.at for sample in samples] == [float(second) for second in range(1, 61)]
    assert {sample.choice for sample in samples[-19:]} == {1}
    assert "a switch failed" not in shown


async def test_windows_and_switches_are_reached_by_keys(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        places = []
        nowhere = []
        for key in "{", "{", "{", "}", ")", ")", "(", "(":
            await pilot.press(key)
            await settle(pilot)
            places.append(opened.second())
            nowhere.append(bool(opened.app._notifications))
            opened.app.clear_notifications()
        await opened.until(pilot, lambda: opened.view.state == "running")
        eager = opened.view
    assert places == [30, 20, 20, 30, 40, 40, 1, 1]
    assert nowhere == [False, False, True, False, False, True, False, True]
    assert eager.variant == "eager"
    assert eager.window is None
    assert len(eager.samples) <= 1


async def test_v_leads_to_the_last_window_of_a_variant_that_was_recorded(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        choices = {choice.name: choice.unavailable for choice in opened.view.choices}
        assert "v switch" in text_of(opened.app)
        await pilot.press("v", "1")
        await opened.until(pilot, lambda: opened.second() == 30)
        await opened.until(pilot, lambda: opened.view.window is not None)
        view = opened.view
        await pilot.press("v", "3", "escape")
        await settle(pilot)
        assert opened.second() == 30
    assert choices == {"eager": None, "compiled": None, "fused+graph": "not recorded"}
    assert view.variant == "eager"
    assert view.window.report.capture.variant == "eager"


async def test_v_is_not_offered_where_one_variant_was_recorded(tmp_path, trace_file):
    path = tmp_path / "one.dsrec"
    with closing(RecordingWriter(path, clock_ns=iter(range(10**6)).__next__)) as writer:
        for message in (hello(), State("running", "eager"), stats(1), ready(trace_file)):
            writer.write(message)
    opened = Opened(path)
    async with opened.app.run_test(size=(200, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        assert "v switch" not in text_of(opened.app)
        assert "v switches" not in text_of(opened.app)
        assert "{ } window" in text_of(opened.app)


async def test_a_typed_time_is_gone_to_and_what_is_no_time_stays(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        await pilot.press(":", *"soon", "enter")
        await settle(pilot)
        assert "not a time" in text_of(opened.app)
        await pilot.press(*["backspace"] * 4, *"1:12.5", "enter")
        await opened.until(pilot, lambda: opened.view.stats and opened.view.stats.seq == 72)
        assert opened.second() == 72.5
        assert [line.text for line in opened.view.log][-1] == "second 72 "
        assert opened.view.log[-1].time == "1:12.0"


async def test_speed_and_pause_and_the_end_are_said_as_they_are(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        await pilot.press(*"]" * 9)
        await settle(pilot)
        assert "as fast as possible" in text_of(opened.app)
        await pilot.press("p")
        await opened.until(pilot, lambda: "ended 1:40.0" in text_of(opened.app))
        assert "paused" not in text_of(opened.app)
        assert "p play" in text_of(opened.app)
        assert opened.view.stats.seq == 100
        await pilot.press(*"[" * 8)
        await pilot.press("p")
        await opened.until(pilot, lambda: "playing 0:0" in text_of(opened.app))
        assert "0.25x" in text_of(opened.app)
        await pilot.press("p")
        await opened.until(pilot, lambda: "paused 0:0" in text_of(opened.app))


async def test_a_click_on_the_track_goes_there(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        row = opened.app._main.query_one("#playback")
        start, cells = row._track
        await pilot.click("#playback", offset=(start + cells - 1, 0))
        await opened.until(pilot, lambda: opened.second() == 100)
        await pilot.click("#playback", offset=(1, 0))
        await settle(pilot)
        assert opened.second() == 100


async def test_a_window_that_is_analysed_late_is_not_shown_at_an_earlier_moment(recording):
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        feed = opened.app._feeds.shown
        await opened.until(pilot, lambda: feed.view().window is not None)
        late = feed.view().window
        await pilot.press("{")
        await opened.until(pilot, lambda: feed.view().window and feed.view().window.at == 30)
        from decodescope.tui.model.windows import Job

        feed.analysed(Job((late.path,), 0, 60.0, 0), late)
        assert feed.view().window.at == 30


async def test_a_cut_recording_has_a_banner_that_a_jump_keeps(recording):
    recording.write_bytes(recording.read_bytes()[:-3])
    opened = Opened(recording)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.view.window is not None)
        await pilot.press("{")
        await opened.until(pilot, lambda: opened.second() == 30)
        assert "run.dsrec is degraded" in text_of(opened.app)
        assert [line.code for line in opened.view.log if line.code] == ["recording_cut"]
        await pilot.press("escape", "}")
        await opened.until(pilot, lambda: opened.second() == 60)
        assert "degraded" not in text_of(opened.app)


@given(st.floats(0, 100), st.sampled_from(["window", "switch"]), st.booleans())
def test_a_neighbour_is_the_nearest_mark_on_that_side(second, kind, forward):
    playback = at(second)
    found = neighbour_mark(playback, kind, forward)
    beyond = [
        mark
        for mark in MARKS
        if mark.kind == kind
        and mark.t_ns != playback.position_ns
        and (mark.t_ns > playback.position_ns) == forward
    ]
    nearest = min(beyond, key=lambda mark: abs(mark.t_ns - playback.position_ns), default=None)
    assert found == nearest


def test_the_last_of_a_variant_is_its_last_window_or_where_it_began():
    assert last_of(at(0), "eager") == MARKS[1]
    assert last_of(at(0), "fused") is None
    only = msgspec.structs.replace(at(0), marks=MARKS[2:3])
    assert last_of(only, "compiled") == MARKS[2]


def test_speeds_end_at_both_sides():
    assert next_speed(1.0, 1) == 2.0
    assert next_speed(SPEEDS[0], -1) == 0.25
    assert math.isinf(next_speed(math.inf, 1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1:30", 90),
        (" 0:01.5 ", 1.5),
        ("1:00:00", 100),
        ("50%", 50),
        ("12.5 %", 12.5),
        ("", None),
        ("-1", None),
        ("1:2:3:4", None),
        ("soon", None),
        ("%", None),
        ("\u0661", None),
        ("9" * 400, None),
        ("nan", None),
        ("1e3", None),
    ],
)
def test_typed_times(text, seconds):
    assert typed_time_ns(text, at(0)) == (None if seconds is None else seconds * NS)
