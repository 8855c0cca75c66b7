"""The app with a scripted worker: what it shows, what its keys do, what it survives."""

import asyncio
import gzip
import json
import threading
import time
from pathlib import Path

import pytest
from scripted import (
    ScriptedLink,
    StillClock,
    hello,
    live_app,
    play,
    ready,
    stats,
    text_of,
    write_trace,
)

from decodescope.analyzer.protocol import (
    Bye,
    CaptureTrace,
    Failure,
    Log,
    Pause,
    Progress,
    Resume,
    State,
    SwitchVariant,
)
from decodescope.analyzer.recording import RecordingWriter
from decodescope.tui import analysis
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link import WorkerDied
from decodescope.tui.painter import PAINT_INTERVAL_S
from decodescope.tui.sources import ReplaySource, TraceSource

DIED = WorkerDied(None, "SIGKILL", ("loading weights", "CUDA error: an illegal memory access"))


class Session:
    """An app under test with its link, its clock and a folder for its files."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.link, self.clock, self.folder = ScriptedLink(), StillClock(), folder
        self.app = live_app(self.link, self.clock, folder, **options)

    async def settle(self, pilot) -> None:
        """Until everything said was read, analysed and painted."""
        for _ in range(3):
            await pilot.pause()
            for worker in pilot.app.workers:
                if worker.name != "link":
                    await worker.wait()
        await pilot.pause(0.02)
        pilot.app._repaint()
        await pilot.pause()

    async def run(self, pilot, *events: object) -> None:
        self.link.say(hello(), State("running", "eager"), stats(1), *events)
        await self.settle(pilot)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


async def test_figures_of_a_run_and_its_window(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        shown = text_of(session.app)
    for piece in ("running", "llama-3.2-1b@random", "random weights", "eager", "NVIDIA H200"):
        assert piece in shown
    assert "47.2" in shown
    assert "launch-bound" in shown
    assert "host_wait" in shown
    assert "48 GPU ops" in shown
    assert "self._entries" in shown


async def test_unknown_is_a_dash_and_never_zero(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(Progress("importing torch"))
        await session.settle(pilot)
        figures = text_of(session.app).splitlines()[2]
    assert figures.split() == ["\u2013"] * 10


async def test_a_variants_figures_are_not_shown_for_another(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        session.link.say(State("building", "compiled"), stats(2, "eager", 99.0))
        await session.settle(pilot)
        switched = text_of(session.app)
        session.link.say(State("running", "eager"), stats(3, "eager", 51.0))
        await session.settle(pilot)
        back = text_of(session.app)
    assert "99.0" not in switched
    assert switched.splitlines()[2].split() == ["\u2013"] * 10
    assert "waiting for the first window of compiled" in switched
    assert "51.0" in back
    assert "launch-bound" in back


async def test_number_keys_switch_variants_that_can_run(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        for key in ("1", "3", "9", "2"):
            await pilot.press(key)
    assert session.link.sent == [SwitchVariant("compiled")]


async def test_freeze_holds_the_view_and_skips_analyses(session, trace_file, monkeypatch):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        before = text_of(session.app)
        called = []
        monkeypatch.setattr(analysis, "analyse_file", lambda path, at: called.append(path) or 1 / 0)
        session.link.say(stats(2, "eager", 88.8), ready(trace_file))
        await session.settle(pilot)
        frozen = text_of(session.app)
        monkeypatch.undo()
        assert not called
        session.clock.now += 5
        await pilot.press("space")
        await session.settle(pilot)
        thawed = text_of(session.app)
    assert frozen == before
    assert "frozen" in frozen.splitlines()[0]
    assert "frozen" in frozen.splitlines()[2]
    assert "88.8" in thawed
    assert "launch-bound" in thawed


async def test_a_frozen_view_still_says_that_the_worker_died(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        session.link.say(DIED)
        await session.settle(pilot)
        shown = text_of(session.app)
    assert "worker died" in shown.splitlines()[0]
    assert "killed by SIGKILL" in shown


NOT_FOUND = (
    "model not found: nope/nope is not in the local cache and the hub cannot be reached; "
    "check the name and the network, or use `tiny` or a preset's random weights"
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_worker_that_gave_up_says_why_in_full(session, size):
    async with session.app.run_test(size=size) as pilot:
        session.link.say(Progress("loading nope/nope"), Failure(NOT_FOUND, 3, True), Bye("failed"))
        session.link.say(WorkerDied(3, None, ("Traceback",)))
        await session.settle(pilot)
        shown = text_of(session.app)
        assert session.app.fatal_failure == Failure(NOT_FOUND, 3, True)
        session.link.say(hello(), State("running", "eager"))
        await pilot.press("R")
        await session.settle(pilot)
        assert session.app.fatal_failure is None
    flat = " ".join(shown.replace("▌", " ").split())
    assert NOT_FOUND in flat
    assert "R restart it" in flat
    assert "Traceback" not in flat


async def test_a_frozen_view_survives_a_resize(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        session.link.say(stats(2, "eager", 88.8))
        await pilot.resize_terminal(140, 45)
        await session.settle(pilot)
        shown = text_of(session.app)
    assert "88.8" not in shown
    assert "frozen" in shown


async def test_pause_and_resume(session):
    session.link.answers = True
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("p")
        await session.settle(pilot)
        paused = text_of(session.app)
        await pilot.press("p")
        await session.settle(pilot)
        resumed = text_of(session.app)
    assert session.link.sent == [Pause(), Resume()]
    assert "paused" in paused.splitlines()[0]
    assert "running" in resumed.splitlines()[0]


async def test_a_captured_trace_is_written_and_never_overwrites(session, trace_file):
    taken = session.folder / "decodescope-eager-20260102-030405.json.gz"
    taken.write_bytes(b"precious")
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("t")
        session.link.say(ready(trace_file, requested=True))
        await session.settle(pilot)
        shown = text_of(session.app)
    written = session.folder / "decodescope-eager-20260102-030405-2.json.gz"
    assert session.link.sent == [CaptureTrace()]
    assert taken.read_bytes() == b"precious"
    assert json.loads(gzip.decompress(written.read_bytes())) == json.loads(trace_file.read_text())
    assert "trace written to" in shown
    assert not list(session.folder.glob("*.tmp"))


async def test_a_trace_that_cannot_be_written_is_an_error_on_screen(session, tmp_path):
    async with session.app.run_test(size=(200, 40)) as pilot:
        await session.run(pilot, ready(tmp_path / "gone.json", requested=True))
        await session.settle(pilot)
        shown = text_of(session.app)
    assert "trace not written" in shown
    assert "gone.json" in shown


async def test_death_shows_a_banner_keeps_the_data_and_r_restarts(session, trace_file):
    async with session.app.run_test(size=(100, 36)) as pilot:
        await session.run(pilot, ready(trace_file))
        session.link.say(DIED)
        session.clock.now += 10
        await session.settle(pilot)
        dead = text_of(session.app)
        await pilot.press("R")
        await session.settle(pilot)
        restarted = text_of(session.app)
    assert "killed by SIGKILL" in dead
    assert "CUDA error: an illegal memory access" in dead
    assert "R restart" in dead
    assert "launch-bound" in dead
    assert "10 s" in dead
    assert session.link.restarts == 1
    assert "killed by SIGKILL. The" not in restarted


async def test_r_asks_before_it_restarts_a_running_worker(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("R")
        assert session.link.restarts == 0
        await pilot.press("R")
        assert session.link.restarts == 1


async def test_exit_code_is_named(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, WorkerDied(3, None, ()))
        assert "exit code 3" in text_of(session.app)


async def test_no_cuda_is_said_unless_the_cpu_was_asked_for(tmp_path):
    for chosen in (False, True):
        session = Session(tmp_path, cpu_chosen=chosen)
        async with session.app.run_test(size=(100, 30)) as pilot:
            session.link.say(hello("cpu"), State("running", "eager"))
            await session.settle(pilot)
            shown = text_of(session.app)
        assert ("No CUDA device: running tiny on the CPU" in shown) != chosen
        assert "device: cpu" in shown


async def test_a_failure_can_be_dismissed(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, Failure("out of GPU memory: lower --batch", 3, False))
        assert "out of GPU memory: lower --batch" in text_of(session.app).splitlines()[1]
        await pilot.press("escape")
        await session.settle(pilot)
        assert "out of GPU memory" not in text_of(session.app).splitlines()[1]


async def test_a_bad_trace_is_an_error_on_screen(session, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(broken))
        shown = text_of(session.app)
        session.link.say(stats(2, "eager", 66.6))
        await session.settle(pilot)
        assert "66.6" in text_of(session.app)
    assert "broken.json" in shown


async def test_a_window_whose_file_is_gone_is_no_error(session, tmp_path):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(tmp_path / "gone.json"))
        assert "gone.json" not in text_of(session.app)
        assert "waiting for the first window of eager" in text_of(session.app)


async def test_a_death_is_not_hidden_by_a_later_error(session, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, DIED, ready(broken))
        assert "killed by SIGKILL" in text_of(session.app).splitlines()[1]


async def test_variants_and_keys_can_be_clicked(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        lines = text_of(session.app).splitlines()
        row = next(y for y, line in enumerate(lines) if "2 compiled" in line)
        await pilot.click(offset=(lines[row].index("compiled"), row))
        await pilot.click(offset=(lines[-1].index("pause"), len(lines) - 1))
        await session.settle(pilot)
    assert session.link.sent == [SwitchVariant("compiled"), Pause()]


async def test_a_recording_plays_pauses_ends_and_starts_over(tmp_path, trace_file):
    path = tmp_path / "run.dsrec"
    with RecordingWriter(path, clock_ns=iter(range(10**6)).__next__) as recording:
        for message in (hello(), State("running", "eager"), stats(1), ready(trace_file)):
            recording.write(message)
    app = DecodescopeApp(ReplaySource(path), clock=StillClock(), folder=tmp_path)
    settle = Session.settle
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.3)
        await settle(None, pilot)
        ended = text_of(app)
        await pilot.press("2")
        await pilot.press("t")
        await settle(None, pilot)
        await pilot.press("R")
        await pilot.pause(0.3)
        await settle(None, pilot)
        again = text_of(app)
    for shown in (ended, again):
        assert "replay" in shown.splitlines()[0]
        assert "ended: end of recording" in shown.splitlines()[0]
        assert "run.dsrec" in shown.splitlines()[0]
        assert "launch-bound" in shown
    assert (tmp_path / "decodescope-eager-20260102-030405.json.gz").exists()


async def test_a_broken_recording_is_an_error_on_screen(tmp_path):
    path = tmp_path / "run.dsrec"
    path.write_bytes(b"nothing of the kind")
    app = DecodescopeApp(ReplaySource(path), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause(0.3)
        await Session.settle(None, pilot)
        assert "run.dsrec" in text_of(app).splitlines()[1]
        assert "failed" in text_of(app).splitlines()[0]


async def test_launches_on_a_cpu_are_unknown(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello("cpu"), State("running", "eager"), stats(1), ready(trace_file))
        await session.settle(pilot)
        await pilot.press("escape")
        await session.settle(pilot)
        figures = text_of(session.app).splitlines()[2].split()
    assert figures[3] == "\u2013"
    assert figures[4] == "48"


async def test_a_window_taken_at_another_pace_says_so(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        assert "a step took 1.15 ms then" in text_of(session.app)
        session.link.say(stats(2, "eager", 850.0))
        await session.settle(pilot)
        assert "a step took" not in text_of(session.app)


async def test_a_crash_of_the_analysis_is_an_error_on_screen(session, trace_file, monkeypatch):
    monkeypatch.setattr(analysis, "analyse_file", lambda path, at: [][1])
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        assert "the analysis failed (IndexError" in text_of(session.app)


async def test_the_screen_goes_on_while_an_analysis_runs_and_the_latest_window_wins(
    session, tmp_path, monkeypatch
):
    gate, started, paths = threading.Event(), threading.Event(), []
    analyse = analysis.analyse_file

    def parked(path, at):
        paths.append(path.name)
        started.set()
        gate.wait(20)
        return analyse(path, at)

    monkeypatch.setattr(analysis, "analyse_file", parked)
    windows = [write_trace(tmp_path / f"window-{number}.json") for number in range(4)]
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello(), State("running", "eager"), ready(windows[0]))
        while not started.is_set():
            await pilot.pause(0.02)
        session.link.say(*(ready(window) for window in windows[1:]), stats(7, "eager", 77.7))
        await pilot.pause(0.4)
        shown = text_of(session.app)
        gate.set()
        await session.settle(pilot)
        assert "launch-bound" in text_of(session.app)
    assert "77.7" in shown
    assert paths == ["window-0.json", "window-3.json"]


async def test_escape_sequences_in_the_text_do_not_reach_the_terminal(session):
    async with session.app.run_test(size=(100, 40)) as pilot:
        session.link.say(hello(), State("running", "eager"))
        session.link.say(stats(1, text="before\x1b[31mafter\x07\nnext"))
        session.link.say(Log("info", "log\x1b]0;title\x07 line"))
        await session.settle(pilot)
        shown = text_of(session.app)
    assert "\x1b" not in shown
    assert "before·[31mafter·" in shown


async def test_no_tokenizer_is_said(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello(), State("running", "eager"), stats(1, text=""))
        await session.settle(pilot)
        assert "no tokenizer" in text_of(session.app)


async def test_copy_puts_the_figures_on_the_clipboard(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        await pilot.press("y")
        copied = session.app.clipboard
    assert "tok/s        47.2" in copied
    assert "launch-bound" in copied
    assert "host_wait" in copied


async def test_screenshot_is_written(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("ctrl+s")
        await session.settle(pilot)
    assert (session.folder / "decodescope-20260102-030405.svg").read_text().startswith("<svg")


async def test_traces_are_opened_and_number_keys_switch_between_them(tmp_path):
    first = write_trace(tmp_path / "a.json", "eager")
    broken = tmp_path / "b.json"
    broken.write_text("{")
    app = DecodescopeApp(TraceSource((first, broken)), clock=StillClock(), folder=tmp_path)
    settle = Session.settle
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(None, pilot)
        opened = text_of(app)
        await pilot.press("2")
        await settle(None, pilot)
        unreadable = text_of(app)
        await pilot.press("1")
        await settle(None, pilot)
        back = text_of(app)
    assert "launch-bound" in opened
    assert "a.json" in opened
    assert "unreadable" in unreadable.splitlines()[0]
    assert "b.json" in unreadable.splitlines()[1]
    assert "launch-bound" not in unreadable
    assert "launch-bound" in back


async def test_open_shows_a_trace_and_leads_back_to_the_paused_worker(session, trace_file):
    session.link.answers = True
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("o")
        await pilot.pause()
        await pilot.press("tab", *str(trace_file)[:0])
        session.app.screen.query_one("Input").focus()
        session.app.screen.query_one("Input").value = str(trace_file)
        await pilot.press("enter")
        await session.settle(pilot)
        trace = text_of(session.app)
        await pilot.press("o")
        await pilot.pause()
        session.app.screen.query_one("OptionList").focus()
        await pilot.press("home", "enter")
        await session.settle(pilot)
        live = text_of(session.app)
    assert "window-0001.json" in trace
    assert "47.2" not in trace
    assert session.link.sent == [Pause(), Resume()]
    assert "47.2" in live
    assert session.link.closed


async def test_a_path_that_does_not_exist_is_said_in_the_chooser(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("o")
        await pilot.pause()
        session.app.screen.query_one("Input").focus()
        session.app.screen.query_one("Input").value = "/nowhere/x.dsrec"
        await pilot.press("enter")
        await pilot.pause()
        assert "/nowhere/x.dsrec: no such file" in text_of(session.app)
        await pilot.press("escape")


async def test_help_lists_every_key(session):
    async with session.app.run_test(size=(120, 60)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        shown = text_of(session.app)
        await pilot.press("escape")
        await pilot.pause()
        assert "Keys" not in text_of(session.app)
    for piece in ("space", "Capture a trace", "host_wait", "launch-bound", "MBU"):
        assert piece in shown


async def test_every_action_is_in_the_palette(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        titles = {command.title for command in session.app.get_system_commands(session.app.screen)}
    assert {"Help", "Freeze the view", "Capture a trace", "Quit", "Theme"} <= titles
    assert "Switch to compiled" in titles
    assert "Switch to fused+graph" not in titles


async def test_quit_closes_the_link(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("q")
        await pilot.pause()
    assert session.link.closed


async def test_the_end_of_a_run_is_said(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, Bye("end of recording"))
        assert "ended: end of recording" in text_of(session.app).splitlines()[0]


async def test_a_burst_of_reports_is_painted_a_few_times_only(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        figures, drawn = session.app.screen.query_one("#figures"), []
        draw = figures.draw
        figures.draw = lambda *size: drawn.append(size) or draw(*size)
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
        await session.settle(pilot)
        drawn = []
        for panel in session.app.screen.query("Panel"):
            panel.draw = lambda *size, name=panel.id: drawn.append(name)
        session.link.say(stats(8, "eager", 12.3))
        await asyncio.sleep(1.3)
        assert drawn == []


async def test_sizes_from_one_cell_to_a_wall(session, trace_file):
    sizes = [(1, 1), (2, 3), (5, 1), (1, 40), (9, 9), (20, 6), (34, 12), (59, 15), (60, 16),
             (76, 20), (79, 24), (80, 24), (99, 34), (100, 33), (100, 34), (120, 40), (159, 50),
             (160, 34), (200, 50), (300, 3), (300, 100)]  # fmt: skip
    async with session.app.run_test(size=(80, 24)) as pilot:
        await play(session.app, session.link, session.clock)
        session.link.say(ready(trace_file), DIED)
        await session.settle(pilot)
        for width, height in sizes:
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            lines = text_of(session.app).splitlines()
            assert len(lines) <= height
            assert session.app.screen.size == (width, height)
