"""Errors around the app are shown on its screen, and the app stays up."""

import pytest
from textual.widgets._toast import Toast

from decodescope.analyzer.protocol.messages import Bye, Failure, Progress, State
from decodescope.tui import feeds
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.sources import ReplaySource
from tests.helpers.scripted import DIED, StillClock, hello, ready, settle, stats, text_of


async def test_a_frozen_view_still_says_that_the_worker_died(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("space")
        session.link.say(DIED)
        await settle(pilot)
        shown = text_of(session.app)
    assert "worker died" in shown.splitlines()[0]
    assert "killed by SIGKILL" in shown


NOT_FOUND = (
    "model not found: nope/nope is not in the local cache and the hub cannot be reached; "
    "check the name and the network, or use `tiny` or a preset's random weights"
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_reason_of_a_fatal_failure_is_shown_in_full(session, size):
    async with session.app.run_test(size=size) as pilot:
        session.link.say(Progress("loading nope/nope"), Failure(NOT_FOUND, 3, True), Bye("failed"))
        session.link.say(WorkerDied(3, ("Traceback",)))
        await settle(pilot)
        shown = text_of(session.app)
        assert session.app.fatal_failure == Failure(NOT_FOUND, 3, True)
        session.link.say(hello(), State("running", "eager"))
        await pilot.press("R")
        await settle(pilot)
        assert session.app.fatal_failure is None
    flat = " ".join(shown.replace("▌", " ").split())
    assert NOT_FOUND in flat
    assert "R restart it" in flat
    assert "Traceback" not in flat


async def test_a_trace_that_cannot_be_written_is_an_error_on_screen(session, tmp_path):
    async with session.app.run_test(size=(200, 40)) as pilot:
        await session.run(pilot, ready(tmp_path / "gone.json", requested=True))
        await settle(pilot)
        shown = text_of(session.app)
    assert "trace not written" in shown
    assert "gone.json" in shown


async def test_notifications_leave_most_of_the_smallest_screen(session):
    async with session.app.run_test(size=(60, 16), notifications=True) as pilot:
        await session.run(pilot)
        await pilot.press("t", "y", "v", "R")
        await settle(pilot)
        toasts = [toast.region for toast in session.app.screen.query(Toast)]
    assert len(toasts) == 2
    assert sum(region.height for region in toasts) <= 4


async def test_death_shows_a_banner_keeps_the_data_and_r_restarts(session, trace_file):
    async with session.app.run_test(size=(100, 36)) as pilot:
        await session.run(pilot, ready(trace_file))
        session.link.say(DIED)
        session.clock.now += 10
        await settle(pilot)
        dead = text_of(session.app)
        await pilot.press("R")
        await settle(pilot)
        restarted = text_of(session.app)
    assert "killed by SIGKILL" in dead
    assert "CUDA error: an illegal memory access" in dead
    assert "R restart" in dead
    assert "host-bound" in dead
    assert "10 s" in dead
    assert session.link.restarts == 1
    assert "killed by SIGKILL. The" not in restarted


async def test_the_exit_code_is_shown(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, WorkerDied(3, ()))
        assert "exit code 3" in text_of(session.app)


async def test_a_failure_can_be_dismissed(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, Failure("out of GPU memory: lower --batch", 3, False))
        assert "out of GPU memory: lower --batch" in text_of(session.app).splitlines()[1]
        await pilot.press("escape")
        await settle(pilot)
        assert "out of GPU memory" not in text_of(session.app).splitlines()[1]


async def test_a_bad_trace_is_an_error_on_screen(session, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(broken))
        shown = text_of(session.app)
        session.link.say(stats(2, "eager", 66.6))
        await settle(pilot)
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


async def test_a_broken_recording_is_an_error_on_screen(tmp_path):
    path = tmp_path / "run.dsrec"
    path.write_bytes(b"nothing of the kind")
    app = DecodescopeApp(ReplaySource(path), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause(0.3)
        await settle(pilot)
        assert "run.dsrec" in text_of(app).splitlines()[1]
        assert "failed" in text_of(app).splitlines()[0]


async def test_a_crash_of_the_analysis_is_an_error_on_screen(session, trace_file, monkeypatch):
    monkeypatch.setattr(feeds, "analyse_files", lambda paths, at, progress, given=None: [][1])
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        # The lines break where the trace's folder lets them.
        words = text_of(session.app).replace("▌", " ").split()
        assert "the analysis failed (IndexError" in " ".join(words)


async def test_escape_sequences_in_the_text_do_not_reach_the_terminal(session):
    async with session.app.run_test(size=(100, 40)) as pilot:
        session.link.say(hello(), State("running", "eager"))
        session.link.say(stats(1, text="before\x1b[31mafter\x07\nnext"))
        await settle(pilot)
        shown = text_of(session.app)
    assert "\x1b" not in shown
    assert r"before\x1b[31mafter\x07" in shown
