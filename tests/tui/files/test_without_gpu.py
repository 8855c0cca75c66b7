"""Without a GPU, `v` replays what was recorded of the chosen variant on one, and says so."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.protocol.messages import (
    Hello,
    Pause,
    Resume,
    State,
    SwitchVariant,
    VariantInfo,
)
from decodescope.analyzer.recordings.bundled import (
    bundled_heads,
    bundled_recordings,
    bundled_variants,
)
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import LiveSource, ReplaySource
from tests.helpers.scripted import ScriptedLink, StillClock, hello, settle, stats, text_of

NAMES = ("eager", "compiled", "fused+graph", "of-a-package")
LAPTOP = msgspec.structs.replace(
    hello("cpu"),
    variants=(
        VariantInfo("eager", "transformers as people run it"),
        *(VariantInfo(name, "its summary", "needs CUDA") for name in NAMES[1:]),
    ),
)


async def live(pilot, link: ScriptedLink, greeting: Hello) -> None:
    link.say(greeting, State("running", "eager"), stats(1))
    await settle(pilot)
    await pilot.press("escape")


async def test_a_laptop_replays_the_recording_of_the_variant_and_comes_back(tmp_path: Path) -> None:
    link = ScriptedLink(answers=True)
    app = DecodescopeApp(LiveSource(link), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await live(pilot, link, LAPTOP)
        await pilot.press("v")
        await settle(pilot)
        shown = text_of(app)
        assert shown.count("H200 recording of llama-3.2-1b") >= 2
        assert "needs CUDA" in shown, "what was not recorded says why it does not run"
        await pilot.press("3")
        await settle(pilot)
        view = app.view()
        assert (view.kind, view.variant) == ("replay", "fused+graph")
        assert "A recording of another machine" in text_of(app)
        assert isinstance(link.sent[-1], Pause)
        assert not any(isinstance(message, SwitchVariant) for message in link.sent)
        # From there to another one, also where it can be compared, and back to the run.
        await pilot.press("7", "v", "1")
        await settle(pilot)
        opened = next(entry for entry in app._painter.shown().shelf.nearby if entry.place == "open")
        assert opened.variant == "eager"
        assert (app.view().kind, app.view().variant) == ("replay", "eager")
        await pilot.press("8", "enter")
        await settle(pilot)
        assert app.view().kind == "live"
        assert isinstance(link.sent[-1], Resume)


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"weights": "checkpoint"}])
async def test_a_gpu_and_a_model_of_the_user_have_no_stand_in(
    tmp_path: Path, change: dict[str, str]
) -> None:
    link = ScriptedLink(answers=True)
    app = DecodescopeApp(LiveSource(link), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await live(pilot, link, msgspec.structs.replace(LAPTOP, **change))
        assert app.view().possible == (0,)
        await app.action_choose(2)
        await settle(pilot)
        assert app.view().kind == "live"
        assert "needs CUDA" in str([note.message for note in app._notifications])


async def test_every_bundled_recording_leads_to_every_other(tmp_path: Path) -> None:
    runs = [bundled_variants(head.hello) for head in bundled_heads().values()]
    assert {path for run in runs for path, _ in run.values()} == set(bundled_recordings())
    for run in runs:
        assert len({(hello.model, hello.tp) for _, hello in run.values()}) == 1
    assert {hello.model for _, hello in bundled_variants().values()} == {"llama-3.2-1b@random"}
    app = DecodescopeApp(ReplaySource(bundled_variants()["eager"][0]), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        choices = app.view().choices
        assert {choice.name for choice in choices if choice.recorded} == set(bundled_variants()) - {
            "eager"
        }
        assert all(choice.unavailable is None for choice in choices if choice.recorded)
