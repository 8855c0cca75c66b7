"""Files on the sides of a comparison: those beside what is open, several a side, the demo pair."""

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import load
from decodescope.analyzer.comparing.diff import diff_sides
from decodescope.analyzer.protocol.messages import State, VariantInfo
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.candidates import Candidate, next_side, sides_to_compare
from decodescope.tui.model.shelf import FileEntry, beside
from decodescope.tui.model.sources import ReplaySource
from decodescope.tui.panels.comparing.setup import ComparisonSetupPanel
from decodescope.tui.panels.comparing.steps import ComparisonStepsPanel
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.looks import Looks, after
from tests.helpers.app.recorded import write_window
from tests.helpers.scripted import StillClock, hello, settle, stats, text_of, write_trace
from tests.tui.comparing.page import TALL, Page, said

# Without a GPU, one variant is timed; another one runs in Triton's interpreter.
LAPTOP = msgspec.structs.replace(
    hello("cpu"),
    variants=(
        VariantInfo("eager", "transformers as people run it"),
        VariantInfo("compiled", "CUDA graphs", "needs CUDA"),
        VariantInfo("fused", "own kernels", None, True),
    ),
)
RECORDED = {path.stem.removeprefix("h200-llama-3.2-1b-"): path for path in bundled_recordings()}


def test_every_file_comes_to_every_side_by_one_key() -> None:
    for sides in itertools.product(("", "A", "B"), repeat=3):
        candidates = [Candidate(str(n), "", "", side=side) for n, side in enumerate(sides)]
        seen = []
        for _ in range(3):
            side = next_side(candidates, "0")
            candidates[0] = Candidate("0", "", "", side=side)
            seen.append(side)
        on_a = "A" in sides[1:]
        assert set(seen) == ({"", "A", "B"} if on_a else {"", "A"})
        bases, others = sides_to_compare(candidates, "2")
        assert set(bases).isdisjoint(others)
        assert set(bases) == {each.key for each in candidates if each.side == "A"}


async def test_a_file_of_the_same_folder_is_three_keys_away(tmp_path: Path) -> None:
    opened, other = write_trace(tmp_path / "b.json", "eager"), tmp_path / "c.json"
    write_window(tmp_path, "fused+graph").rename(other)
    (tmp_path / "notes.txt").write_text("no trace")
    page = Page(tmp_path, opened)
    async with page.app.run_test(size=TALL) as pilot:
        await settle(pilot)
        await pilot.press("7", "down", "c")
        await settle(pilot)
        keys = page.app.screen.query_one(ComparisonSetupPanel)._shown.table.rows
        assert [each.name for each in keys[:2]] == ["b.json", "c.json"]
        assert "notes.txt" not in [each.name for each in keys]
        result = page.state.result
        assert isinstance(result, Diff)
        assert (result.base.source.path, result.other.source.path) == (str(opened), str(other))
        shown = text_of(page.app)
        assert "[A]    b.json" in shown
        assert "Median steps by layer" in shown


async def test_several_files_a_side_are_what_diff_makes_of_them(tmp_path: Path) -> None:
    files = [write_trace(tmp_path / f"{name}.json", name) for name in ("a", "b", "c", "d")]
    page = Page(tmp_path, files[0])
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        # The latest file is first: d, c, b below a.
        await pilot.press("down", "enter", "down", "enter", "down", "enter", "enter", "c")
        await settle(pilot)
        shown, result = text_of(page.app), page.state.result
    sides = [[analyze(load(files[n])).report for n in side] for side in ((0, 1), (3, 2))]
    assert result == diff_sides(*sides)
    assert page.state.origin == "2 against 2 files"
    assert shown.count("[A]") == shown.count("[B]") == 2


async def test_bundled_recordings_are_compared_by_two_keys_with_their_live_rates() -> None:
    app = DecodescopeApp(ReplaySource(RECORDED["eager"]), clock=StillClock())
    async with app.run_test(size=TALL) as pilot:
        await settle(pilot)
        await pilot.press("7", "c")
        await settle(pilot)
        shown = text_of(app)
        result = app._comparisons.state.result
        assert isinstance(result, Diff)
        for report, words in ((result.base, "85.7   11.7"), (result.other, "1,454  0.687")):
            assert report.source.live is not None
            assert words in shown
        assert "unprofiled: 11.8 ms → 687 µs, x0.058" in shown
        # One cursor shows the op of both sides, wherever it is.
        panel = app.screen.query_one(ComparisonStepsPanel)
        panel.focus()
        steps = app._comparisons.state.steps
        assert steps is not None
        for key in ("right", "full_stop", "plus", "right", "right", "comma", "minus", "left"):
            await pilot.press(key)
            await pilot.pause()
            ops = [side.at(panel._at_ns) for side in steps.sides]
            lines = [
                line for line in text_of(app).split("\n") if steps.place_at(panel._at_ns) in line
            ]
            for line, found in zip(lines, ops, strict=True):
                assert (found[0] if found else "nothing") in line
        # A file that is named keeps the rates of both runs, too.
        await pilot.press("d", *str(RECORDED["compiled"]), "enter")
        await settle(pilot)
        named = app._comparisons.state.result
        assert isinstance(named, Diff)
        assert named.base.source.path == str(RECORDED["eager"])
        assert named.base.source.live == result.base.source.live
        assert named.other.source.live is not None
        for size in ((1, 1), (20, 9), (60, 16), (80, 24), (300, 100)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
    assert app.crash is None


@pytest.mark.parametrize("live", [True, False])
async def test_with_nothing_else_the_demo_pair_is_compared(tmp_path: Path, live: bool) -> None:
    page = Page(tmp_path, *([] if live else [write_trace(tmp_path / "mine.json")]))
    async with page.app.run_test(size=TALL) as pilot:
        if live:
            page.worker.say(LAPTOP, State("running", "eager"), stats(1))
        await settle(pilot)
        await pilot.press("7", "c")
        await settle(pilot)
        result = page.state.result
        assert isinstance(result, Diff)
        paths = (result.base.source.path, result.other.source.path)
        assert paths == (str(RECORDED["eager"]), str(RECORDED["fused+graph"]))
        assert said(page) == ""


async def test_keys_typed_before_the_files_are_known_count_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = threading.Event()

    def slow(*folders: Sequence[Path]) -> tuple[FileEntry, ...]:
        known.wait()
        return beside(*folders)

    monkeypatch.setattr("decodescope.tui.library.beside", slow)
    page = Page(tmp_path, write_trace(tmp_path / "mine.json"))
    async with page.app.run_test(size=TALL) as pilot:
        await settle(pilot)
        await pilot.press("7", "c")
        known.set()
        await settle(pilot)
        assert isinstance(page.state.result, Diff)
        assert said(page) == ""


async def test_how_it_looks(looks: Looks) -> None:
    def app(traits: TerminalTraits) -> DecodescopeApp:
        return DecodescopeApp(ReplaySource(RECORDED["eager"]), traits, StillClock())

    async def compared(pilot) -> None:
        await after("escape", "7", "c")(pilot)
        pilot.app.screen.query_one(ComparisonStepsPanel).focus()
        await after("full_stop", "full_stop", "right", "plus", "plus")(pilot)

    await looks.walk(app, {"1 replay": after(), "time": after("colon"), "7 compared": compared})
