"""The app while Triton's interpreter runs the kernels: tokens and text, and no speed."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from decodescope.analyzer.protocol.messages import CaptureTrace, State, VariantInfo
from tests.helpers.scripted import ScriptedLink, StillClock, hello, live_app, settle, stats, text_of

VARIANTS = (
    VariantInfo("eager", "transformers"),
    VariantInfo("fused", "fused kernels", interpreted=True),
)
NOT_TIMED = replace(stats(3, "fused"), tokens_per_s=None, step_p50_ns=None, step_p99_ns=None)


@pytest.fixture
async def pilot(tmp_path: Path):
    link, clock = ScriptedLink(answers=True), StillClock()
    app = live_app(link, clock, tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        link.say(replace(hello("cpu"), variants=VARIANTS), State("running", "fused"), NOT_TIMED)
        await settle(pilot)
        pilot.link, pilot.clock = link, clock
        yield pilot


async def test_no_rate_is_shown(pilot) -> None:
    shown = text_of(pilot.app)
    assert "interpreted" in shown.splitlines()[0]
    assert "not timed" in shown
    assert "Triton's interpreter runs fused" in shown
    assert "Open the archive" in shown
    assert not any(word in shown for word in (" p50", " p99", "MBU", "47.2"))


async def test_a_step_of_a_minute_is_no_silence(pilot) -> None:
    assert silent_after(pilot, 60) is None
    assert silent_after(pilot, 600) == 600
    timed = stats(4, "eager")
    pilot.link.say(State("running", "eager"), timed)
    await settle(pilot)
    assert "47.2 tok/s" in text_of(pilot.app)
    assert silent_after(pilot, 60) == 60


def silent_after(pilot, seconds: float) -> float | None:
    return dataclasses.replace(pilot.app.view(), now=pilot.clock.now + seconds).silent_s


async def test_no_window_is_promised(pilot) -> None:
    await pilot.press("t")
    await settle(pilot)
    assert CaptureTrace() not in pilot.link.sent
    said = [notice.message for notice in pilot.app._notifications]
    assert said == ["Triton's interpreter has no times to capture."]


async def test_before_a_variant_runs_none_is_interpreted(pilot) -> None:
    view = pilot.app.view()
    assert view.interpreted
    assert not dataclasses.replace(view, current=-1).interpreted
