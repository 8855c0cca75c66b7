"""The A/B page: variants measured in turn by a scripted process, and files compared."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.comparing.messages import (
    ComparisonConfig,
    ComparisonDone,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.protocol import (
    Bye,
    Failure,
    Heartbeat,
    Pause,
    Resume,
    State,
    WorkerConfig,
)
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.views.sides import sides_of, waterfalls_of
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.comparing import NO_COMPARISON, MeasuredRun
from decodescope.tui.model.feed import open_feed
from decodescope.tui.model.sources import LiveSource, TraceSource
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.comparing.waterfalls import bar_parts
from decodescope.tui.style.terminal import TerminalTraits
from tests.helpers.comparison_reports import run_of
from tests.helpers.scripted import (
    ScriptedLink,
    StillClock,
    hello,
    settle,
    stats,
    text_of,
    write_trace,
)
from tests.tui.comparing.scripted_comparison import (
    ScriptedComparison,
    comparison,
    done,
    measured,
    whole_round,
)

KEY = next(page.key for page in PAGES if page.name == "ab")
SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]
TALL = (120, 60)
PLAIN = TerminalTraits(unicode=False, color=False)


class Page:
    """The app on the A/B page, over a live worker or over files."""

    def __init__(self, folder: Path, *files: Path, traits: TerminalTraits | None = None) -> None:
        self.worker, self.link = ScriptedLink(answers=True), ScriptedComparison()
        self.clock = StillClock()
        source = TraceSource(files) if files else LiveSource(self.worker)
        self.app = DecodescopeApp(source, traits, self.clock, folder, comparison=self.link)
        self._live = not files

    async def open(self, pilot, *keys: str) -> None:
        if self._live:
            self.worker.say(hello(), State("running", "eager"), stats(1))
        await settle(pilot)
        await pilot.press(KEY, *keys)
        await settle(pilot)

    async def say(self, pilot, *events: object) -> str:
        self.link.say(*events)
        if self._live:
            self.worker.say(Heartbeat())
        await settle(pilot)
        return text_of(self.app)

    @property
    def state(self):
        return self.app._comparisons.state


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


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
        assert "left" not in shown
        page.clock.now += 10
        shown = await page.say(pilot, measured("eager", 0)[2], *measured("compiled", 0)[:2])
        # Two runs of round 1 and 2 took 10 s, and so will the five that are left.
        assert "about 50 s left · round 1 of 3: compiled: loading weights" in shown
        assert "no round is complete" in shown

        shown = await page.say(pilot, measured("compiled", 0)[2], *whole_round(1)[:4])
        shown = await page.say(pilot, RoundCompared(comparison(2)))
        assert "of the complete rounds so far" in shown
        assert "x4.502" in shown
        assert "unknown" in shown

        shown = await page.say(pilot, *whole_round(2))
        assert "x4.51" in shown
        assert "faster" in shown
        shown = await page.say(pilot, *done())
    assert page.state.phase == "done"
    assert page.worker.sent == [Pause(), Resume()]
    for piece in ("1.2e-05", "98.4", "x4.51", "4.71", "21.2", "679", "79.8"):
        assert piece in shown, piece
    for piece in ("mlp+input_norm", "· mlp", "triton_poi_fused_mul_add_3", "new", "gone"):
        assert piece in shown, piece
    assert "paused meanwhile" not in shown
    assert page.link.closed
    assert isinstance(page.state.result, Comparison)


async def test_what_is_compared_can_be_chosen(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "enter", "c")
        assert page.link.started == []
        assert "at least two" in _said(page)
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
        await page.app._show_instead(feed)
        await page.say(pilot, *whole_round(0), *done())
        assert page.state.phase == "done"
        assert page.worker.sent == [Pause()]
        await page.app.on_back_to_live()
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


async def test_two_files_are_compared(tmp_path: Path) -> None:
    files = [write_trace(tmp_path / f"{name}.json", name) for name in ("eager", "compiled")]
    page = Page(tmp_path, *files)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        shown = text_of(page.app)
        assert "A  eager · eager.json" in shown
        assert "B  compiled · compiled.json" in shown
        assert "x1.000" in shown
        before = page.state.result
        assert isinstance(before, Diff)
        # One file cannot be compared, and a bad one loses nothing.
        await pilot.press("enter", "c")
        await settle(pilot)
        assert "Choose two files" in _said(page)
        await pilot.press("enter")
        files[1].write_text("{")
        await pilot.press("c")
        await settle(pilot)
        assert page.state.phase == "failed"
        assert "compiled.json" in page.state.error
        assert page.state.result is before
        assert "x1.000" in text_of(page.app)


async def test_a_file_is_named_in_a_dialog(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = comparison(3, accuracy=True)
    (tmp_path / "saved.json").write_bytes(msgspec.json.encode(saved))
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        for text, problem in (
            ("", "name a file"), (".", ".: is a folder"), ("none", "none: no such file"),
        ):  # fmt: skip
            await pilot.press("d")
            await _type(pilot, text)
            assert problem in text_of(page.app)
            await pilot.press("escape")
        await pilot.press("d")
        await _type(pilot, "saved.json")
        await settle(pilot)
        assert page.state.result == saved
        assert "saved.json" in text_of(page.app)
        # There is no window yet that a trace could be compared with.
        await pilot.press("d")
        write_trace(tmp_path / "other.json")
        await _type(pilot, "other.json")
        await settle(pilot)
        assert "no window to compare it with" in text_of(page.app)
        assert page.state.result == saved


async def test_a_comparison_is_exported_and_opened_again(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "e")
        assert "comparison as JSON" not in text_of(page.app)
        await pilot.press("escape", "c")
        await page.say(pilot, *done())
        for keys in (("e",), ("e", "down")):
            await pilot.press(*keys)
            await settle(pilot)
            await pilot.press("enter")
            await settle(pilot)
        (markdown,) = tmp_path.glob("*.md")
        assert "| eager |" in markdown.read_text()
        (written,) = tmp_path.glob("*.json")
        before = page.state.result
        await pilot.press("d")
        await _type(pilot, written.name)
        await settle(pilot)
        assert page.state.origin == written.name
        assert page.state.result == before
        assert page.state.result is not before


async def _type(pilot, text: str) -> None:
    from textual.widgets import Input

    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")
    await pilot.pause()


def _said(page: Page) -> str:
    return " ".join(note.message for note in page.app._notifications)


@pytest.mark.parametrize("traits", [TerminalTraits(), PLAIN])
async def test_no_size_and_no_name_breaks_it(tmp_path: Path, traits: TerminalTraits) -> None:
    page = Page(tmp_path, traits=traits)
    bad = comparison(3, **{"eager": (1.0, 1.1, 1.2), "[red]\x1b[2Jé\u202e" * 9: (2.0, 2.1, 2.2)})
    async with page.app.run_test(size=(120, 40)) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), ComparisonDone(bad))
        for size in ((1, 1), (7, 3), (20, 9), (60, 16), (80, 24), (300, 100), (129, 30)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert "\x1b" not in text_of(page.app)
    assert page.app.crash is None


async def test_the_page_as_text_has_every_figure(page: Page) -> None:
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot, "c")
        await page.say(pilot, *whole_round(0), *done())
        text = page.app._main.as_text()
    for piece in ("compiled\t212", "x4.51", "kernels over the limit", "mlp+input_norm", "+1,200"):
        assert piece in text, piece


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", ["choose", "running", "done"])
def test_how_it_looks(snap_compare, tmp_path: Path, size: tuple[int, int], scene: str) -> None:
    page = Page(tmp_path)

    async def act(pilot) -> None:
        await page.open(pilot)
        if scene == "choose":
            return
        await pilot.press("minus", "minus", "c")
        for event in (*whole_round(0), *measured("eager", 1)[:2]):
            page.clock.now += 2
            await page.say(pilot, event)
        if scene == "done":
            await page.say(pilot, *whole_round(1)[2:], *whole_round(2), *done())

    assert snap_compare(page.app, terminal_size=size, run_before=act)


CONFIG = ComparisonConfig(WorkerConfig(variant="", batch=1, tokens=4), ("a", "b"), 4)


@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=7),
    st.floats(0, 1000),
)
def test_the_time_left_is_that_of_the_runs_left(took_s: list[float], spent_s: float) -> None:
    state, now = NO_COMPARISON.begun(CONFIG, 0.0), 0.0
    for number, seconds in enumerate(took_s):
        round, name = divmod(number, 2)
        state = state.received(ComparisonProgress(4, round, "ab"[name]), now)
        now += seconds
        state = state.received(RunMeasured(run_of("ab"[name], round, 5.0)), now)
    round, name = divmod(len(took_s), 2)
    state = state.received(ComparisonProgress(4, round, "ab"[name]), now)
    assert len(state.runs) == len(took_s)
    last = {run.variant: run.took_s for run in state.runs}
    mean = sum(took_s) / len(took_s)
    runs_left = ["ab"[number % 2] for number in range(len(took_s), 8)]
    whole = sum(last.get(one, mean) for one in runs_left)
    left = state.left_s(now)
    assert left == pytest.approx(whole, rel=1e-6, abs=1e-6)
    later = state.left_s(now + spent_s)
    assert later is not None
    # A run that takes longer than expected does not make the others shorter.
    rest = whole - last.get(runs_left[0], mean)
    assert later >= rest - 1e-6
    assert later == pytest.approx(max(whole - spent_s, rest), rel=1e-6, abs=1e-6)


def test_before_the_first_run_and_after_the_last_no_time_is_known() -> None:
    state = NO_COMPARISON.begun(CONFIG, 0.0)
    assert state.left_s(1.0) is None
    state = state.received(ComparisonProgress(4, 0, "a"), 0.0)
    assert state.left_s(1.0) is None
    state = state.received(RunMeasured(run_of("a", 0, 5.0)), 3.0)
    assert state.runs == (MeasuredRun("a", 0, 5.0, 3.0),)
    assert state.left_s(3.0) == 21.0
    assert state.received(ComparisonProgress(4, stage="scoring a"), 30.0).left_s(31.0) is None


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 200))
def test_the_bars_of_a_page_share_one_scale(faster: int, slower: int, cells: int) -> None:
    rates = {"eager": (1e9 / slower,) * 3, "compiled": (1e9 / faster,) * 3}
    found = waterfalls_of(sides_of(comparison(3, **rates)))
    assert found.scale_ns == max(bar.step_ns for bar in found.bars)
    for bar in found.bars:
        drawn = bar_parts(bar, found.scale_ns, cells)
        assert len(drawn) == max(round(bar.step_ns * cells / found.scale_ns), 1)
        for part, _, ns in bar.parts:
            assert abs(drawn.count(part) - ns * cells / found.scale_ns) <= 1
        order = [part for part, _, _ in bar.parts]
        assert drawn == sorted(drawn, key=order.index)
