"""While a run starts, a recording of the same is shown: marked, dim, and nowhere else."""

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from textual.color import Color

from decodescope.analyzer.protocol.messages import Bye, Failure, State, WorkerConfig
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.cli import live as live_command
from decodescope.cli.app import AppOptions
from decodescope.tui import background
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.background import read_preview, recording_of
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import (
    DIED,
    ScriptedLink,
    Session,
    StillClock,
    hello,
    ready,
    settle,
    text_of,
)


def config(model: str, variant: str, batch: int, dtype: str | None = None) -> WorkerConfig:
    return WorkerConfig(variant=variant, batch=batch, tokens=1, model=model, dtype=dtype)


ASKED = config("llama-3.2-1b@random", "eager", 1)
MARK = "recorded on H200"
FIGURES = f"{MARK}: shown until this run's first figures"
WINDOW = f"{MARK}: shown until this run's first window"


@pytest.fixture(autouse=True)
def gpu(monkeypatch) -> None:
    monkeypatch.setattr(background, "has_gpu", lambda: True)


def starting(folder: Path, traits: TerminalTraits | None = None) -> Session:
    session = Session(folder)
    source = LiveSource(session.link, asked=ASKED)
    session.app = DecodescopeApp(source, traits, session.clock, folder)
    return session


async def shown(session: Session, pilot) -> str:
    """The screen, once the recording is read."""
    await pilot.pause()
    await settle(pilot)
    return text_of(session.app)


def brightness(app: DecodescopeApp, word: str) -> float:
    """How bright the first piece of the screen is that holds `word`, from 0 to 1."""
    strips = app.screen._compositor.render_strips()
    piece = next(piece for strip in strips for piece in strip if word in piece.text)
    return Color.from_rich_color(piece.style.color).brightness


async def test_figures_and_the_last_window_are_shown_until_the_run_has_its_own(
    tmp_path: Path, trace_file: Path
) -> None:
    session = starting(tmp_path)
    async with session.app.run_test(size=(150, 45)) as pilot:
        before = await shown(session, pilot)
        assert before.count(FIGURES) == 2
        assert before.count(WINDOW) == 2
        assert before.count(MARK) == 4
        assert "host-bound" in before
        assert "tok/s" in before
        words = ("tok/s", "host-bound", "over the limit", "waiting for the host")
        greyed = {word: brightness(session.app, word) for word in words}
        assert brightness(session.app, WINDOW) > max(greyed.values())
        view = session.app.view()
        assert view.window is view.stats is None

        await session.run(pilot)
        measured = text_of(session.app)
        assert "47.2 tok/s" in measured
        assert FIGURES not in measured
        assert measured.count(MARK) == 2

        session.link.say(ready(trace_file))
        await settle(pilot)
        assert MARK not in text_of(session.app)
        assert brightness(session.app, "tok/s") > 1.3 * greyed["tok/s"]
        for word in ("over the limit", "waiting for the host"):
            assert brightness(session.app, word) > 1.3 * greyed[word]
        assert session.app.view().preview is None


@pytest.mark.parametrize(
    "events",
    [
        [DIED],
        [Failure("no CUDA", 3, True)],
        [Bye("quit")],
        [State("failed", "eager")],
        [hello("cpu")],
        [hello(), State("building", "compiled")],
    ],
    ids=["died", "fatal", "bye", "failed", "cpu", "variant"],
)
async def test_it_vanishes_when_the_run_fails_or_is_another_one(tmp_path: Path, events) -> None:
    session = starting(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        assert MARK in await shown(session, pilot)
        session.link.say(*events)
        await settle(pilot)
        assert MARK not in text_of(session.app)
        # Nor does it come back with a new worker.
        session.link.say(hello(), State("building", "eager"))
        await settle(pilot)
        assert MARK not in text_of(session.app)


async def test_it_vanishes_from_a_frozen_view_too(tmp_path: Path) -> None:
    session = starting(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await shown(session, pilot)
        await pilot.press("space")
        assert MARK in text_of(session.app)
        session.link.say(DIED)
        await settle(pilot)
        assert MARK not in text_of(session.app)


async def test_it_does_not_come_into_a_frozen_view(tmp_path: Path, monkeypatch) -> None:
    gate = threading.Event()
    look = recording_of
    monkeypatch.setattr(
        "decodescope.tui.feeds.recording_of", lambda asked: gate.wait(20) and look(asked)
    )
    session = starting(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        gate.set()
        assert MARK not in await shown(session, pilot)
        await pilot.press("space")
        assert MARK in await shown(session, pilot)


async def test_a_restart_shows_the_run_s_own_data_and_no_recording(
    tmp_path: Path, trace_file: Path
) -> None:
    session = starting(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await shown(session, pilot)
        await session.run(pilot, ready(trace_file))
        session.link.say(DIED)
        await settle(pilot)
        await pilot.press("R")
        session.link.say(hello(), State("building", "eager"))
        await settle(pilot)
        assert MARK not in text_of(session.app)


async def test_only_panels_see_it(tmp_path: Path) -> None:
    session, other = starting(tmp_path), Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        assert MARK in await shown(session, pilot)
        await pilot.press("enter", "down", "enter")
        seen, text = session.app.view(), session.app.screen.as_text()
        session.app.paint()
        selected = session.app._painter.shown().selection
        for page in "23456789":
            await pilot.press(page)
            await settle(pilot)
            lines = text_of(session.app).splitlines()
            assert sum(MARK in line for line in lines) == 1, page
    async with other.app.run_test(size=(120, 40)) as pilot:
        await shown(other, pilot)
        without, text_without = other.app.view(), other.app.screen.as_text()
        nothing = other.app._painter.shown().selection
    assert text == text_without
    assert selected == nothing
    names = ("log", "unseen", "samples", "stats", "window", "hello", "choices", "banner", "meters")
    assert {name: getattr(seen, name) for name in names} == {
        name: getattr(without, name) for name in names
    }


@pytest.mark.parametrize("size", [(1, 1), (20, 6), (60, 16), (80, 24), (120, 40), (200, 50)])
async def test_the_words_are_there_without_colours_and_at_every_size(tmp_path: Path, size) -> None:
    session = starting(tmp_path, TerminalTraits(color=False, unicode=False))
    async with session.app.run_test(size=size) as pilot:
        text = await shown(session, pilot)
        assert size[0] < 60 or MARK in text
        assert size[0] < 120 or FIGURES in text


def test_only_a_recording_of_the_same_is_taken(monkeypatch) -> None:
    found = recording_of(ASKED)
    assert found in bundled_recordings()
    assert found.stem.endswith("-eager")
    for asked in (
        config("llama-3.2-1b", "eager", 1),
        config("llama-3.2-1b@random", "eager-x", 1),
        config("llama-3.2-1b@random", "eager", 4),
        config("llama-3.2-1b@random", "eager", 1, "fp32"),
    ):
        assert recording_of(asked) is None
    assert recording_of(config("llama-3.2-1b@random", "eager", 1, "bf16")) == found
    monkeypatch.setattr(background, "has_gpu", lambda: False)
    assert recording_of(ASKED) is None


async def test_a_recording_that_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.dsrec"
    broken.write_bytes(bundled_recordings()[0].read_bytes()[:100])
    assert await read_preview(broken, StillClock()) is None
    assert await read_preview(tmp_path / "missing.dsrec", StillClock()) is None


async def test_the_worker_is_started_before_a_recording_is_looked_for(
    tmp_path: Path, monkeypatch
) -> None:
    order: list[str] = []
    start, look = ScriptedLink.start, recording_of

    async def started(link: ScriptedLink) -> None:
        order.append("worker")
        await start(link)

    monkeypatch.setattr(ScriptedLink, "start", started)
    monkeypatch.setattr(
        "decodescope.tui.feeds.recording_of", lambda asked: order.append("look") or look(asked)
    )
    session = starting(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await shown(session, pilot)
    assert order == ["worker", "look"]


@pytest.mark.parametrize(
    ("place", "options", "expected"),
    [
        ("terminal", ["--variant", "fp8"], ("llama-3.2-1b@random", "fused+graph+fp8_e4m3", 1)),
        ("terminal", ["--model", "tiny", "--batch", "4"], ("tiny", "eager", 4)),
        ("terminal", ["--device", "cpu"], None),
        ("drawing", ["--once"], None),
    ],
)
def test_the_command_asks_for_it_only_in_a_terminal(
    monkeypatch,
    tmp_path: Path,
    place: str,
    options: list[str],
    expected: tuple[str, str, int] | None,
) -> None:
    sources: list[LiveSource] = []
    monkeypatch.setattr(live_command, "show_app", lambda source, *_: sources.append(source))
    monkeypatch.setattr(live_command, "last_settings", lambda: None)
    monkeypatch.setattr(AppOptions, "place", lambda self: place)
    monkeypatch.setattr(WorkerLink, "spawn", lambda self: None)
    found = CliRunner().invoke(live_command.live, options, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    (asked,) = [source.asked for source in sources]
    assert (asked and (asked.model, asked.variant, asked.batch)) == expected
    assert asked is None or asked.dtype is None
