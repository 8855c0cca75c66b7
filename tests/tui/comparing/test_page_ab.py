"""The A/B page: variants measured in turn by a scripted process."""

from pathlib import Path

import pytest

from decodescope.analyzer.comparing.comparison_messages import ComparisonDone, RoundCompared
from decodescope.analyzer.protocol.messages import Bye, Failure, Pause, Resume
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.messages import AskFile
from tests.helpers.scripted import settle, text_of, write_trace
from tests.tui.comparing.page import TALL, Page, said
from tests.tui.comparing.scripted_comparison import comparison, done, measured, whole_round


async def test_a_comparison_from_its_start_to_its_end(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        shown = text_of(page.app)
        assert shown.count("[x]") == 2
        assert "needs a GPU of compute capability 8.0" in shown
        await pilot.press("minus", "minus", "c")
        await settle(pilot)
        (config,) = page.link.started
        assert (config.variants, config.rounds) == (("eager", "compiled"), 3)
        assert (config.config.model, config.config.dtype) == ("llama-3.2-1b@random", "bf16")
        assert not config.config.trust_remote_code
        assert page.worker.sent == [Pause()]
        assert "the live worker is paused meanwhile" in text_of(page.app)

        shown = await page.say(pilot, *measured("eager", 0)[:2])
        assert "round 1 of 3: eager: loading weights" in shown
        shown = await page.say(pilot, measured("eager", 0)[2], *measured("compiled", 0)[:2])
        assert "round 1 of 3: compiled: loading weights" in shown
        assert "Speed beside accuracy" not in shown

        shown = await page.say(pilot, measured("compiled", 0)[2], *whole_round(1)[:4])
        shown = await page.say(pilot, RoundCompared(comparison(2)))
        assert "of the complete rounds so far" in shown
        assert "x4.502" in shown
        assert "no interval" in shown

        shown = await page.say(pilot, *whole_round(2))
        assert "x4.51" in shown
        assert "faster" in shown
        shown = await page.say(pilot, *done())
    assert page.state.phase == "done"
    assert page.worker.sent == [Pause(), Resume()]
    for piece in ("1.2e-05", "98.4", "x4.51", "4.71", "21.2", "679", "79.8"):
        assert piece in shown, piece
    for piece in ("mlp+input_norm", "(was ", "triton: mul_add", "new", "gone"):
        assert piece in shown, piece
    assert "paused meanwhile" not in shown
    assert page.link.closed
    assert isinstance(page.state.result, Comparison)


async def test_what_is_compared_can_be_chosen(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "enter", "c")
        assert page.link.started == []
        assert "at least two" in said(page)
        await pilot.press("enter", "plus", "c")
        await settle(pilot)
        assert page.link.started[0].rounds == 6
        await pilot.press("enter", "plus", "c")
        await settle(pilot)
        assert len(page.link.started) == 1
        assert page.state.rounds == 6
        assert page.state.toggled == frozenset({"eager"}) ^ {"eager"}


async def test_a_variant_that_is_not_available_cannot_be_chosen(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "down", "down", "enter", "c")
        await settle(pilot)
    assert page.link.started[0].variants == ("eager", "compiled")


async def test_a_cancelled_comparison_keeps_its_rounds(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "x")
        assert page.link.cancelled == 0
        await pilot.press("c")
        await page.say(pilot, *whole_round(0), *measured("eager", 1)[:2])
        await pilot.press("x")
        await settle(pilot)
        assert page.link.cancelled == 1
        assert "cancelled: its complete rounds are shown" in text_of(page.app)
        shown = await page.say(pilot, ComparisonDone(comparison(1)), Bye("done"))
        assert page.state.phase == "cancelled"
        assert "x4.489" in shown
        assert page.worker.sent == [Pause(), Resume()]
        # The next one begins with nothing of this one.
        await pilot.press("c")
        await settle(pilot)
    assert page.state.result is None
    assert len(page.link.started) == 2


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (WorkerDied(-9, ("loading", "bus error")), "killed by SIGKILL; its last output: bus error"),
        (Failure("variant compiled failed: no room", 3, True), "variant compiled failed: no room"),
    ],
)
async def test_what_was_compared_outlives_a_failure(page: Page, end, words: str) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), *measured("eager", 1)[:1])
        shown = await page.say(pilot, end, Bye("failed"), WorkerDied(3, ()))
        assert words in " ".join(shown.split())
        assert "x4.489" in shown
    assert page.state.phase == "failed"
    assert page.worker.sent == [Pause(), Resume()]


async def test_without_memory_the_worker_can_be_ended(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c", "E")
        assert not page.worker.ended
        shown = await page.say(pilot, Failure("eager: out of GPU memory", 3, True))
        assert "E ends it" in shown
        await pilot.press("E")
        await settle(pilot)
        assert page.worker.ended
        assert "R restart it" in text_of(page.app)
        await pilot.press("c")
        await settle(pilot)
        assert len(page.link.started) == 2
        assert not page.state.worker_paused


async def test_a_comparison_that_cannot_be_started_is_one_line(page: Page) -> None:
    page.link.broken = "the comparison cannot be started: no room"
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        assert page.link.broken in text_of(page.app)
        assert page.worker.sent == [Pause(), Resume()]
        page.link.broken = ""
        await pilot.press("c")
        await settle(pilot)
    assert page.state.phase == "running"


async def test_a_paused_worker_stays_paused(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "p", "c")
        await page.say(pilot, *done())
    assert page.worker.sent == [Pause()]


async def test_nothing_starts_the_worker_while_variants_are_measured(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        for keys in (("p",), ("R", "R"), ("t",), ("v", "2")):
            await pilot.press("escape", *keys)
            await settle(pilot)
            assert "The worker is paused until the comparison" in text_of(page.app), keys
        assert (page.worker.sent, page.worker.restarts) == ([Pause()], 0)
        await page.say(pilot, *whole_round(0), *done())
        assert page.worker.sent == [Pause(), Resume()]
        await pilot.press("p")
        await settle(pilot)
    assert page.worker.sent[2:] == [Pause()]


async def test_a_worker_that_is_not_shown_at_the_end_waits(page: Page, tmp_path: Path) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        feed = open_feed(TraceSource((write_trace(tmp_path / "other.json"),)), page.clock)
        await page.app._files.show_instead(feed)
        await page.say(pilot, *whole_round(0), *done())
        assert page.state.phase == "done"
        assert page.worker.sent == [Pause()]
        await page.app._files.answer(AskFile("back_to_live"))
    assert page.worker.sent == [Pause(), Resume()]


async def test_the_cursors_side_is_shown_in_detail(page: Page) -> None:
    three = comparison(3, eager=(1.0, 1.1, 1.2), compiled=(2.0, 2.1, 2.2), fused=(3.0, 3.1, 3.2))
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        shown = await page.say(pilot, ComparisonDone(three))
        assert "Ranges: eager to fused" in shown
        page.app.query_one("#ab_sides").focus()
        await pilot.press("down")
        await settle(pilot)
        assert "Ranges: eager to compiled" in text_of(page.app)
        assert "Kernels: eager to compiled" in text_of(page.app)
