"""How the screens look, as SVG; the clock stands still. Accept changes with --snapshot-update."""

from collections.abc import Callable
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import Failure, Log, Progress, State
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import (
    ScriptedLink,
    StillClock,
    hello,
    live_app,
    play,
    ready,
    settle,
    stats,
    write_trace,
)

LOG_TAIL = ("loading weights", "CUDA error: an illegal memory access was encountered")
PLAIN = TerminalTraits(unicode=False, color=False)
SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]
# What is pressed to open each.
DIALOGS = {
    "help": ("question_mark",),
    "variants": ("v",),
    "export": ("e",),
    "compare with": ("7", "d"),
    "palette": ("ctrl+p",),
}


def by_size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


class Scene:
    """An app, and what happened before its picture is taken."""

    def __init__(self, snap_compare: Callable[..., bool], folder: Path) -> None:
        self._compare = snap_compare
        self.link, self.clock, self.folder = ScriptedLink(answers=True), StillClock(), folder

    async def run(self, pilot) -> None:
        """Ninety seconds of a run, a window, and 2.4 s without a word."""
        await play(pilot.app, self.link, self.clock)
        self.link.say(ready(write_trace(self.folder / "window-0001.json")))
        await settle(pilot)
        self.clock.now += 2.4
        self.link.say(Log("info", "generation 9 starts at the prompt"))
        await settle(pilot)

    def matches(self, size, before=None, traits=None, theme=None, app=None) -> bool:
        app = app or live_app(self.link, self.clock, self.folder, traits)

        async def act(pilot) -> None:
            if theme:
                app.theme = theme
            await (before or self.run)(pilot)
            await settle(pilot)

        return self._compare(app, terminal_size=size, run_before=act)

    def after(self, *keys: str, events=()) -> Callable:
        """The run, then these keys and events."""

        async def act(pilot) -> None:
            await self.run(pilot)
            await pilot.press(*keys)
            self.link.say(*events)
            await settle(pilot)

        return act


@pytest.fixture
def scene(snap_compare, tmp_path) -> Scene:
    return Scene(snap_compare, tmp_path)


@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_running(scene, size):
    assert scene.matches(size)


@pytest.mark.parametrize("size", SIZES, ids=by_size)
@pytest.mark.parametrize("dialog", DIALOGS)
def test_dialogs(scene, size, dialog):
    app = live_app(scene.link, scene.clock, Path("captures"))
    assert scene.matches(size, scene.after(*DIALOGS[dialog]), app=app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=by_size)
def test_without_colour_and_unicode(scene, size):
    assert scene.matches(size, traits=PLAIN)


def test_without_colour(scene):
    assert scene.matches((100, 30), traits=TerminalTraits(unicode=True, color=False))


def test_ascii_in_colour(scene):
    assert scene.matches((80, 24), traits=TerminalTraits(unicode=False, color=True))


def test_light_theme(scene):
    assert scene.matches((120, 40), theme="decodescope-light")


def test_died(scene):
    died = WorkerDied(-9, LOG_TAIL)
    assert scene.matches((120, 40), scene.after(events=[died]))


def test_failure(scene):
    failure = Failure("out of GPU memory: lower --batch or --context", 3, False)
    assert scene.matches((80, 24), scene.after(events=[failure]))


def test_no_cuda(scene):
    async def act(pilot) -> None:
        scene.link.say(hello("cpu"), State("running", "eager"), stats(1))
        await settle(pilot)

    assert scene.matches((80, 24), act)


def test_paused(scene):
    assert scene.matches((100, 36), scene.after("p"))


def test_frozen(scene):
    later = stats(200, "eager", 99.0)
    assert scene.matches((100, 36), scene.after("space", events=[later]))


def test_loading(scene):
    async def act(pilot) -> None:
        scene.link.say(Progress("importing torch"))
        await settle(pilot)

    assert scene.matches((80, 24), act)


def test_trace_opened(scene, monkeypatch):
    monkeypatch.chdir(scene.folder)
    paths = tuple(write_trace(Path(name)) for name in ("before.json", "after.json"))
    app = DecodescopeApp(TraceSource(paths), clock=scene.clock, folder=scene.folder)
    assert scene.matches((100, 30), settle, app=app)
