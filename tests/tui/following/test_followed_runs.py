"""The app while it follows a run."""

import asyncio

import pytest

from decodescope.analyzer.protocol.messages import Failure, State
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model import view
from decodescope.tui.model.sources import ReplaySource
from tests.helpers.scripted import StillClock, hello, ready, settle, stats, text_of, write_trace
from tests.tui.following.run import NS, Run


class Opened:
    """The app on a recording that is being written."""

    def __init__(self, run: Run) -> None:
        folder = run.path.parent / "out"
        folder.mkdir()
        self.app = DecodescopeApp(ReplaySource(run.partial), clock=StillClock(), folder=folder)

    def title(self) -> str:
        return text_of(self.app).splitlines()[0]

    def footer(self) -> str:
        return text_of(self.app).splitlines()[-1]

    async def until(self, pilot, condition) -> None:
        for _ in range(400):
            await settle(pilot)
            self.app.paint()
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(text_of(self.app))


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50)])
async def test_the_app_follows_and_offers_no_key_of_the_worker(run, tmp_path, size):
    run.say(2, ready(write_trace(tmp_path / "window.json")))
    opened = Opened(run)
    async with opened.app.run_test(size=size) as pilot:
        await opened.until(pilot, lambda: "47.2 tok/s" in text_of(opened.app))
        assert "following" in opened.title()
        assert "running" in opened.title()
        assert "replay" not in opened.title()
        run.say(3, stats(2, tokens_per_s=88.5))
        await opened.until(pilot, lambda: "88.5 tok/s" in text_of(opened.app))
        keys = opened.footer()
        for label in ("v switch", "t trace", "S settings", "x ", "E ", "R restart", "[ ]"):
            assert label not in keys, keys
        assert "p pause" in keys
        app = opened.app
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert "Pause or resume" in titles
        assert not titles & {
            "Switch to eager",
            "Switch variant or file",
            "Settings",
            "One step",
            "Capture a trace",
            "Restart",
            "Faster",
            "Slower",
        }
        await pilot.press("p")
        await opened.until(pilot, lambda: "paused" in opened.title())
        assert "following" not in opened.title()
        run.say(4, stats(3, tokens_per_s=99.5))
        await opened.until(pilot, lambda: opened.app.view().playback.duration_ns == 4 * NS)
        assert "88.5 tok/s" in text_of(opened.app)
        # The footer is that of the last painting, which may be older than the view.
        if size[0] >= 120:
            await opened.until(pilot, lambda: "F follow" in opened.footer())
        await pilot.press("F")
        await opened.until(pilot, lambda: "99.5 tok/s" in text_of(opened.app))
        assert "following" in opened.title()
        run.writer.close()
        await opened.until(pilot, lambda: "ended" in opened.title())
        assert "F follow" not in opened.footer()
        await pilot.press("F")
        assert "ended" in opened.title()


async def test_keys_lead_back_and_forth_while_it_grows(run, tmp_path):
    for second in (5, 10):
        trace = write_trace(tmp_path / f"window-{second}.json")
        run.say(second, stats(second), ready(trace))
    for quarter in range(41, 81):
        run.say(quarter / 4, stats(quarter))
    opened = Opened(run)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.app.view().window is not None)
        await pilot.press("{")
        await opened.until(pilot, lambda: "playing" in opened.title())
        assert 10 * NS <= opened.app.view().playback.position_ns < 19 * NS
        await pilot.press("p", "{", "{")
        await opened.until(pilot, lambda: opened.app.view().playback.position_ns == 5 * NS)
        assert opened.app.view().playback.state == "paused"
        await pilot.press("F")
        await opened.until(pilot, lambda: "following" in opened.title())
        await opened.until(pilot, lambda: opened.app.view().stats == stats(80))


async def test_a_variant_that_begins_later_can_be_chosen(run):
    opened = Opened(run)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.app.view().stats is not None)
        assert opened.app.view().possible == (0,)
        run.say(2, State("running", "compiled"), stats(2, "compiled"))
        await opened.until(pilot, lambda: opened.app.view().variant == "compiled")
        assert opened.app.view().possible == (0, 1)


async def test_a_worker_that_died_and_was_started_again_is_followed(run):
    opened = Opened(run)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.app.view().stats is not None)
        run.say(2, Failure("The worker was killed by SIGKILL", -9, fatal=True))
        await opened.until(pilot, lambda: "killed by SIGKILL" in text_of(opened.app))
        assert "failed" in opened.title()
        assert "R restart" not in text_of(opened.app)
        run.say(3, hello(), State("running", "eager"), stats(3))
        await opened.until(pilot, lambda: "running" in opened.title())
        assert "SIGKILL" not in text_of(opened.app)


async def test_a_run_that_stopped_to_write_is_not_shown_as_running(run, monkeypatch):
    monkeypatch.setattr(view, "_WORD_WITHIN_S", {"running": 0.2, "paused": 0.2})
    opened = Opened(run)
    async with opened.app.run_test(size=(140, 45)) as pilot:
        await opened.until(pilot, lambda: opened.app.view().stats is not None)
        await opened.until(pilot, lambda: "no word from the worker for" in opened.title())
        assert "R restarts it" not in opened.title()
        # Nothing is recorded of a worker that is paused, so its silence means nothing.
        run.say(2, State("paused", "eager"))
        await opened.until(pilot, lambda: "following   paused" in opened.title())
        await asyncio.sleep(0.5)
        opened.app.paint()
        assert "no word" not in opened.title()
