"""The ranks of one run in the app: who waits for whom."""

import re
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import analyze, analyze_ranks, load
from decodescope.analyzer.text.formatting import duration
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.background import analyse_files
from decodescope.tui.model.describe import describe
from decodescope.tui.model.picks import KernelPick, OpPick, Selection, SpanPick
from decodescope.tui.model.view import Window
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.looks import Looks, after
from tests.helpers.ranks.runs import (
    ALL_REDUCE,
    Run,
    a_run,
    gpus_document,
    rank_document,
    rank_files,
)
from tests.helpers.scripted import settle, text_of
from tests.tui.comparing.page import TALL, Page

PLAIN = TerminalTraits(unicode=False, color=False)
LATE, RANKS = 2, 4
HOSTILE = "[red]\x1b[2J<script>é\u202e"


@pytest.fixture
def run() -> Run:
    late = np.zeros(RANKS, dtype=np.int64)
    late[LATE] = 25_000
    return a_run(RANKS, 64, late)


@pytest.fixture
def files(tmp_path: Path, run: Run) -> list[Path]:
    """The files of a run in which rank 2 is late, on a clock that is 3 µs ahead in the last."""
    paths = rank_files(tmp_path, run)
    paths[-1].write_bytes(rank_document(run, RANKS - 1, clock_ns=3_000))
    return paths


def table(page: Page, name: str) -> TablePanel:
    (found,) = (one for one in page.app.screen.query(TablePanel) if name == one.NAME)
    return found


def lines_of(window: Window, pick: object) -> dict[str, str]:
    _, lines = describe(Selection(pick), window)  # type: ignore[arg-type]
    return {line.label: line.text for line in lines}


async def test_each_rank_has_its_figures_and_the_straggler_is_named(
    tmp_path: Path, files: list[Path]
) -> None:
    page, report = Page(tmp_path, *files), analyze_ranks(files).report
    async with page.app.run_test(size=(160, 50)) as pilot:
        await page.open(pilot)
        shown = text_of(page.app)
        rows = table(page, "ab_setup").as_text(table(page, "ab_setup")._shown)[2:]
        assert f"straggler: rank {LATE} entered 64 of 64 collectives last" in shown
        assert shown.count("who waits for whom") == 1
        assert "Ranks: who waits for whom" in shown
        for rank, row in zip(report.communication.ranks, rows, strict=True):
            for text in (
                f"{rank.rank}",
                f"rank{rank.rank}.json",
                duration(rank.transfer_ns),
                duration(rank.wait_ns),
                duration(rank.exposed_transfer_ns),
                duration(rank.exposed_wait_ns),
                duration(rank.caused_wait_ns),
                "100.0" if rank.rank == LATE else "0.0",
            ):
                assert text in row, text
        (collective,) = report.communication.collectives
        assert collective.wait_ns is not None
        assert re.search(rf"all_reduce .* 0-3 +64 .*{duration(collective.wait_ns.p50)}", shown)
        assert "rank 3 starts 8 last" in shown
        # The answer says so, too.
        await pilot.press("1", "w")
        await settle(pilot)
        assert f"straggler: rank {LATE} entered" in text_of(page.app)


async def test_two_ranks_are_compared_and_the_list_of_one_file_says_nothing_of_ranks(
    tmp_path: Path, files: list[Path]
) -> None:
    page = Page(tmp_path, *files)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        # Drop rank 1, choose the straggler.
        await pilot.press("down", "enter", "down", "enter", "c")
        await settle(pilot)
        shown = text_of(page.app)
        assert "A  rank0.json" in shown
        assert f"B  rank{LATE}.json" in shown
        assert "Ranks: who waits for whom" in shown
        await pilot.press("v", "1")
        await settle(pilot)
        alone = text_of(page.app)
    assert "Ranks: who waits for whom" not in alone
    assert "Collectives" not in alone
    assert "straggler" not in alone


async def test_a_skewed_step_is_shown_in_the_timeline(tmp_path: Path, files: list[Path]) -> None:
    page, across = Page(tmp_path, *files), analyze_ranks(files)
    skew, merged = across.report.communication.skew, across.merged
    assert skew is not None
    assert merged is not None
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        page.app.set_focus(table(page, "skew"))
        await pilot.press("down", "down", "enter")
        await settle(pilot)
        assert page.app._focus.page == "timeline"
        chosen = page.app._focus.selection.pick
    widest = sorted(skew.worst, key=lambda one: (-(one.start_spread_ns or 0), one.index))
    step = widest[2].index
    # Every rank has a step of each number, in order.
    mine = [row for row in range(len(merged.steps)) if merged.step_name(row).endswith(f"_{step}")]
    spans = merged.steps.span.take(np.array(mine))
    assert len(mine) == RANKS
    assert chosen == SpanPick(int(spans.start_ns.min()), int(spans.end_ns.max()))


def test_the_details_of_a_launch_say_for_whom_it_waited(files: list[Path], run: Run) -> None:
    window = analyse_files(files, 0.0)
    trace = window.analysis.trace
    collectives = np.flatnonzero(trace.ops.name == trace.names.index(ALL_REDUCE))
    by_rank = {rank: collectives[trace.ops.device[collectives] == rank] for rank in range(RANKS)}
    late, early = (lines_of(window, OpPick(int(by_rank[rank][5]))) for rank in (LATE, 0))
    entered = run.start_ns[:, 5]
    assert early["waited"] == (
        f"{duration(int(entered[LATE] - entered[0]))} for rank {LATE} GPU 0, "
        "which entered last of 4 GPUs"
    )
    assert early["transfer"] == late["transfer"] == duration(8_000)
    assert late["waited"].startswith("not at all: it entered last; the others of 4 GPUs waited")
    gemm = int(np.flatnonzero(trace.ops.name == trace.names.index("gemm"))[0])
    assert "waited" not in lines_of(window, OpPick(gemm))
    assert "waited" not in lines_of(window, KernelPick("gemm"))
    assert "waited" not in lines_of(window, KernelPick("no such kernel"))


def test_the_details_of_a_collective_say_how_much_of_it_is_waiting(files: list[Path]) -> None:
    window = analyse_files(files, 0.0)
    assert window.ranks is not None
    waited = sum(one.wait_ns for one in window.ranks.communication.ranks)
    every = sum(one.communication_ns for one in window.ranks.communication.ranks)
    assert lines_of(window, KernelPick(ALL_REDUCE))["waited"] == (
        f"{duration(waited)} for other GPUs, {100 * waited / every:.1f} % of 256 collectives' time"
    )
    alone = analyse_files(files[:1], 0.0)
    assert (alone.ranks, alone.communication, alone.tracks.waits) == (None, None, None)
    assert "waited" not in lines_of(alone, KernelPick(ALL_REDUCE))


async def test_the_exported_page_says_who_waits(tmp_path: Path, files: list[Path]) -> None:
    page = Page(tmp_path, *files)
    async with page.app.run_test(size=TALL) as pilot:
        await page.open(pilot)
        await pilot.press("e", "down")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
    (written,) = tmp_path.glob("*.html")
    text = written.read_text()
    assert "Who waits for whom" in text
    assert f"straggler: rank {LATE}" in text
    assert "4 ranks" in text


async def test_the_gpus_of_one_trace_are_shown_too(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "node.json"
    path.write_bytes(gpus_document(run))
    page, report = Page(tmp_path, path), analyze(load(path)).report
    assert report.communication is not None
    async with page.app.run_test(size=(160, 50)) as pilot:
        await page.open(pilot)
        shown = text_of(page.app)
        rows = table(page, "gpus").as_text(table(page, "gpus")._shown)[2:]
        assert f"straggler: GPU {LATE} entered 64 of 64 collectives last" in shown
        assert "GPUs: who waits for whom" in shown
        assert "all_reduce" in shown
        assert "Skew of the steps" in shown
        for gpu, row in zip(report.communication.ranks, rows, strict=True):
            assert {f"{gpu.rank}", duration(gpu.wait_ns)} <= set(row)
        await pilot.press("2")
        await settle(pilot)
        assert "g0 wait" in text_of(page.app)
    window = analyse_files([path], 0.0)
    waited = lines_of(window, KernelPick(ALL_REDUCE))["waited"]
    assert waited.startswith(duration(sum(w.wait_ns for w in report.communication.ranks)))
    names = {
        window.tracks.names[label]
        for one in window.tracks.tracks
        if one.key.kind == "wait"
        for label in one.slices.label.tolist()
    }
    assert names == {f"g{LATE}"}


@pytest.mark.parametrize("traits", [TerminalTraits(), PLAIN])
async def test_no_size_and_no_name_breaks_it(
    tmp_path: Path, run: Run, traits: TerminalTraits
) -> None:
    files = []
    for rank in range(RANKS):
        folder = tmp_path / f"{rank}{HOSTILE.replace('/', '')}"
        folder.mkdir()
        files.append(folder / f"{HOSTILE.replace('/', '')}.json")
        files[-1].write_bytes(rank_document(run, rank, name=f"{HOSTILE} all_reduce"))
    page = Page(tmp_path, *files, traits=traits)
    async with page.app.run_test(size=(120, 40)) as pilot:
        await page.open(pilot)
        assert f"straggler: rank {LATE}" in text_of(page.app)
        for size in ((1, 1), (7, 3), (20, 9), (60, 16), (80, 24), (300, 100), (129, 30)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert "\x1b" not in text_of(page.app)
            assert "\u202e" not in text_of(page.app)
    assert page.app.crash is None


async def test_how_it_looks(looks: Looks, files: list[Path]) -> None:
    def app(traits: TerminalTraits) -> DecodescopeApp:
        return Page(Path("work"), *files, traits=traits).app

    await looks.walk(app, {"7 ranks": after("7"), "2 timeline": after("2")})
