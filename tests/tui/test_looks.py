"""Every page and dialog at every size and on every kind of terminal, as text with its styles.

Accept changes with --snapshot-update; `python -m tools.gallery` draws what is committed.
"""

from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Static

from decodescope.analyzer.protocol.messages import (
    Failure,
    Log,
    ModelInfo,
    Progress,
    Settings,
    State,
)
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app import recorded
from tests.helpers.app.looks import ASCII, DARK_ONLY, Act, Looks, after
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

MODELS = (
    ModelInfo("tiny", "bundled, trained", 3_803_392),
    ModelInfo("llama-3.2-1b@random", "random weights, no download", 1_235_814_400),
    ModelInfo("llama-3.2-1b", "weights of meta-llama/Llama-3.2-1B", 1_235_814_400),
)
RUNS = Settings(1, 128, model="llama-3.2-1b@random")
LOG_TAIL = ("loading weights", "CUDA error: an illegal memory access was encountered")
THROTTLED = "the GPU is throttled: its clock is at 1.2 of 1.98 GHz"


async def model_form(pilot) -> None:
    """The form that names the model, with the effect of what it guesses."""
    await after("escape", "m")(pilot)
    while not pilot.app.screen.query_one("#effect", Static).content:
        await pilot.pause(0.02)
    await settle(pilot)


FILE = {
    "1 answer": after("1"),
    "1 answer why": after("w"),
    "2 timeline": after("w", "2"),
    "2 timeline gap": after("G"),
    "3 kernels": after("escape", "3"),
    "3 kernels launches": after("enter", "f", "7"),
    "4 gaps": after("escape", "escape", "escape", "4", "tab", "down", "shift+tab", "down"),
    "5 ranges": after("escape", "5", "down", "down"),
    "6 limit": after("escape", "6", "right"),
    "9 log": after("escape", "9"),
    # Over the page that is drawn fastest.
    "help": after("question_mark"),
    "export": after("escape", "e"),
    "model": model_form,
    "steps": after("escape", "number_sign"),
    "palette": after("escape", "ctrl+p"),
}


@pytest.mark.slow
async def test_a_file(looks: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = recorded.write_window(Path(), "eager")
    await looks.walk(lambda traits: recorded.app_of(path, traits), FILE)


async def test_a_graph(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    path = recorded.write_window(tmp_path, "fused+graph")
    stops = {"1 answer": after("1"), "5 ranges": after("5", "down", "down"), "6 limit": after("6")}
    await Looks(snapshot, DARK_ONLY).walk(lambda traits: recorded.app_of(path, traits), stops)


class Run:
    """A live run with each terminal: its link, and what happens in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def app(self, traits: TerminalTraits) -> DecodescopeApp:
        self.link, self.clock = ScriptedLink(answers=True, asked=RUNS), StillClock()
        return live_app(self.link, self.clock, Path("captures"), traits)

    async def runs(self, pilot) -> None:
        """Ninety seconds of a run, a window, and 2.4 s without a word."""
        await play(pilot.app, self.link, self.clock)
        greeting = msgspec.structs.replace(hello(), models=MODELS, settings=RUNS)
        self.link.say(greeting, State("running", "eager"), stats(90))
        await settle(pilot)
        self.link.say(ready(write_trace(self._folder / "window-0001.json")))
        await settle(pilot)
        self.clock.now += 2.4
        self.link.say(Log("info", "generation 9 starts at the prompt"))
        await settle(pilot)

    def says(self, *events: object, keys: tuple[str, ...] = ()) -> Act:
        """The worker says this; then keys are pressed."""

        async def act(pilot) -> None:
            self.link.say(*events)
            await after(*keys)(pilot)

        return act


async def test_a_live_run(looks: Looks, tmp_path: Path) -> None:
    run = Run(tmp_path)
    lines = [
        Log("warning", THROTTLED),
        *(Log("info", f"generation {number} starts at the prompt") for number in range(12)),
        Log("error", "CUDA out of memory: " + "tried to allocate 2.00 GiB; " * 8),
    ]
    failure = Failure("out of GPU memory: lower --batch or --context", 3, False)
    stops = {
        "loading": run.says(Progress("importing torch")),
        "1 live": run.runs,
        "9 log": run.says(*lines, keys=("9",)),
        "variants": after("v"),
        "settings": after("escape", "S"),
        "compare with": after("escape", "7", "d"),
        "paused": after("escape", "1", "p"),
        "failure": run.says(failure, keys=("p",)),
        "died": run.says(WorkerDied(-9, LOG_TAIL)),
    }
    await looks.walk(run.app, stops)


async def test_a_run_without_a_gpu(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    run = Run(tmp_path)
    stops = {"1 live": run.says(hello("cpu"), State("running", "eager"), stats(1))}
    await Looks(snapshot, DARK_ONLY).walk(run.app, stops)


async def test_a_live_run_in_ascii(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    run = Run(tmp_path)
    await Looks(snapshot, ASCII).walk(run.app, {"1 live": run.runs, "2 timeline": after("2", "G")})
