"""The form that names the model of what is open, as its keys use it."""

import json
import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input, Label, Static

from decodescope.analyzer import load
from decodescope.analyzer.modelling.config import bundled_config
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.reports.user_facts import Given, given_model
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.picks import OpPick
from decodescope.tui.model.sources import TraceSource, source_for
from decodescope.tui.panels.messages import Choose
from decodescope.tui.screens.naming import ModelScreen
from decodescope.tui.screens.settings import SettingsScreen
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.looks import DARK_ONLY, Looks, after
from tests.helpers.app.recorded import write_window
from tests.helpers.foreign.tensor_parallel import H100, engine_events
from tests.helpers.kineto_events import document
from tests.helpers.scripted import StillClock, settle, text_of

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]
FIELDS = ("model", "weights", "batch", "context", "parallelism")
GUESSED = "meta-llama/Llama-3.1-70B"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace whose model is guessed, in the current folder, with a checkpoint beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    config = bundled_config("llama-3.1-70b")[1]
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    path = tmp_path / "engine.json"
    path.write_bytes(document(engine_events(), **H100))
    return path


def app_of(path: Path, traits: TerminalTraits | None = None) -> DecodescopeApp:
    return DecodescopeApp(source_for(path), traits, StillClock(), path.parent)


async def shown(pilot) -> str:
    """What the form says after it followed the fields."""
    await pilot.pause(0.15)
    await settle(pilot)
    return said(pilot.app)


def said(app: DecodescopeApp) -> str:
    """The lines below the fields, which must be on the screen."""
    lines = [app.screen.query_one(name, Static) for name in ("#effect", ".problem")]
    return " ".join(str(line.content) for line in lines)


def report_of(app: DecodescopeApp):
    window = app._painter.shown().window
    assert window is not None
    return window.report


def field(app: DecodescopeApp, name: str) -> str:
    return app.screen.query_one(f"#{name}", Input).value


@pytest.mark.parametrize("size", SIZES)
async def test_a_guess_is_confirmed_by_two_keys(engine: Path, size: tuple[int, int]) -> None:
    app = app_of(engine)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        before = report_of(app)
        assert f"({GUESSED}?, TP 4)" in " ".join(text_of(app).split())
        await pilot.press("m")
        effect = await shown(pilot)
        assert [field(app, name) for name in FIELDS] == [GUESSED, "", "1", "", "4"]
        origins = [app.screen.query_one(f"#{name}-origin", Label) for name in FIELDS]
        assert [str(label.content) for label in origins] == ["guess", "", "guess", "", "guess"]
        assert f"({GUESSED}, TP 4)" in effect
        await pilot.press("enter")
        await settle(pilot)
        named = report_of(app)
        assert (named.answer.model_source, before.answer.model_source) == ("named", "guessed")
        assert named.answer.limit_ns == before.answer.limit_ns
        assert f"({GUESSED}, TP 4)" in " ".join(text_of(app).split())


async def test_how_it_looks(snapshot: SnapshotAssertion, engine: Path) -> None:
    async def typed(pilot) -> None:
        await after("m", *"llama-3.1-7", "tab", "tab", "tab", "8")(pilot)
        await shown(pilot)

    looks = Looks(snapshot, DARK_ONLY)
    await looks.walk(lambda traits: app_of(engine, traits), {"model": typed})


async def test_the_page_is_as_analyze_makes_it_and_escape_leaves_all(engine: Path) -> None:
    app = app_of(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = report_of(app)
        app._pages.answer(Choose(OpPick(5)))
        await pilot.press("m", "tab", *"fp8", "tab", *"8", "tab", *"900")
        effect = await shown(pilot)
        assert "8 requests, 7,200 KV positions" in effect
        assert "limit ≥" not in effect
        await pilot.press("escape")
        await settle(pilot)
        assert report_of(app) is before
        await pilot.press("m", "tab", *"fp8", "tab", *"8", "tab", *"900", "enter")
        await settle(pilot)
        expected = given_model(Given(), GUESSED, "fp8", 8, 900, 4)
        # Also the window that the selection holds.
        assert report_of(app) == analyze(load(engine), expected).report
        # Every page follows, and what is opened again.
        app.action_page("limit")
        assert "limit" in text_of(app)
        await pilot.press("o", *engine.name, "enter")
        await settle(pilot)
        assert report_of(app) == analyze(load(engine), expected).report
        await pilot.press("m")
        await shown(pilot)
        assert [field(app, name) for name in FIELDS] == [
            GUESSED,
            "fp8",
            "8",
            "900",
            "4",
        ]


async def test_names_and_folders_are_completed_and_what_contradicts_is_said(engine: Path) -> None:
    app = app_of(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = report_of(app)
        for typed, completed, says in (
            ("qwen3-32", "Qwen3-32B", "num_hidden_layers of Qwen/Qwen3-32B is 64, but the trace"),
            ("QWEN3-32B", "QWEN3-32B", "num_hidden_layers of Qwen/Qwen3-32B is 64"),
            ("nonsense", "nonsense", "no model called nonsense is known"),
            ("min", "mine/", "a step reads at least 34.8 GB"),
        ):
            await pilot.press("m", *typed, "tab")
            assert field(app, "model") == completed
            assert says in await shown(pilot)
            # Complete, so that tab goes on, and back.
            await pilot.press("tab")
            assert app.screen.focused is not None
            assert app.screen.focused.id == ("weights" if completed != typed else "batch")
            await pilot.press("enter")
            await settle(pilot)
            if completed == "mine/":
                assert report_of(app).step_cost.model == "mine/"
                continue
            assert isinstance(app.screen, ModelScreen), "a refused model applies nothing"
            await pilot.press("escape")
            await settle(pilot)
            assert report_of(app) is before


async def test_a_folder_that_disappears_and_sizes_that_are_none_lose_nothing(engine: Path) -> None:
    app = app_of(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        before = report_of(app)
        await pilot.press("m", *"mine")
        assert "34.8 GB" in await shown(pilot)
        shutil.rmtree(engine.parent / "mine")
        await pilot.press("enter")
        await settle(pilot)
        assert "no model called mine is known" in said(app)
        (engine.parent / "mine").mkdir()
        await pilot.press("enter")
        await settle(pilot)
        assert said(app).endswith("mine/config.json: No such file or directory")
        model = app.screen.query_one("#model", Input)
        for text in ("x" * 100_000, "~no-one/\0.json", "/" * 100_000, "x" * 100_000 + ".json"):
            model.value = text
            await pilot.press("enter")
            await settle(pilot)
            assert isinstance(app.screen, ModelScreen)
            assert 0 < len(said(app)) <= 300
        await pilot.press("tab", *"fp9", "enter")
        await settle(pilot)
        await pilot.press("shift+tab", *"none", "tab", "ctrl+u", "tab", *"many", "enter")
        await settle(pilot)
        assert "batch: many is no whole number" in said(app)
        await pilot.press("ctrl+u", "enter")
        await settle(pilot)
        assert not isinstance(app.screen, ModelScreen)
        assert report_of(app).step_cost is None
        # Without a model it is guessed again.
        await pilot.press("m", "ctrl+u", "enter")
        await settle(pilot)
        assert report_of(app) == before


async def test_merged_ranks_and_recordings_are_named_too(tmp_path: Path, engine: Path) -> None:
    files = [tmp_path / f"{name}.json" for name in "ab"]
    for path in files:
        shutil.copy(engine, path)
    app = DecodescopeApp(TraceSource(tuple(files)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("m", "enter")
        await settle(pilot)
        assert report_of(app).answer.model_source == "named"
        await pilot.press("v", "2")
        await settle(pilot)
        assert report_of(app).answer.model_source == "named"
    run = write_window(tmp_path, "fused+graph")
    app = app_of(run)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        before = report_of(app)
        await pilot.press("m", "enter")
        await settle(pilot)
        assert report_of(app) is before, "the run knows its model"


async def test_a_live_run_has_settings_instead(session) -> None:
    async with session.app.run_test(size=(100, 36)) as pilot:
        await session.run(pilot)
        await pilot.press("m")
        assert "Only a live worker has settings" in " ".join(
            str(toast.message) for toast in session.app._notifications
        )
        session.link.asked = session.app._memory.remembered.settings or _settings()
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(session.app.screen, SettingsScreen)


def _settings():
    from decodescope.analyzer.protocol.messages import Settings

    return Settings(1, 128, model="tiny")
