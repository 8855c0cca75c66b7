"""Windows of something that runs: taken with `t`, shown when they come, compared with `D`."""

from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer.errors import DecodescopeError
from decodescope.tui.model.picks import OpPick
from tests.helpers.libkineto import trace
from tests.helpers.ranks.runs import a_run, rank_files
from tests.helpers.scripted import settle, write_trace
from tests.helpers.scripted_door import COST, TARGET, metrics


@pytest.fixture
async def pilot(attachment):
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        yield pilot


async def test_the_cost_is_said_before_the_first_window(attachment, pilot) -> None:
    shown = " ".join(attachment.shown.replace("│", " ").split())
    assert f"t takes a window of 300 ms: {COST}" in shown
    assert TARGET in attachment.shown.splitlines()[0]
    assert "attached" in attachment.shown.splitlines()[0]
    assert attachment.door.taken == 0


async def test_a_window_is_shown_when_it_comes(attachment, pilot) -> None:
    await attachment.take(pilot, 1)
    assert attachment.view.window.path.name == "w1.json"
    assert attachment.view.variant == "window-1"
    assert "Where the step goes" in attachment.shown
    assert "1,000→640→960 tok/s" in attachment.view.choices[0].summary
    await attachment.take(pilot, 2)
    assert attachment.view.window.path.name == "w2.json"


async def test_a_window_that_lost_its_kernels_is_taken_again(attachment, pilot, tmp_path) -> None:
    def lost_at_first(folder: Path, number: int) -> list[Path]:
        (path := folder / f"w{number}.json").write_bytes(trace(1, 0, 20, number > 1))
        return [path]

    attachment.door.write = lost_at_first
    await attachment.take(pilot, 1)
    assert attachment.view.window.path.name == "w2.json"
    again = "window: the window lost its kernels; taking it again (1 of 2)"
    assert [line.text for line in attachment.view.log].count(again) == 1
    assert "1,000→640→960 tok/s · 2 windows taken" in attachment.view.choices[0].summary
    assert not (tmp_path / "w1.json").exists()


async def test_windows_are_switched_by_number(attachment, pilot) -> None:
    await attachment.take(pilot, 2)
    await pilot.press("v", "1")
    await settle(pilot)
    assert attachment.view.window.path.name == "w1.json"
    assert "w1.json" in attachment.shown


async def test_another_window_stays_when_one_comes(attachment, pilot) -> None:
    await attachment.take(pilot, 2)
    await pilot.press("v", "1")
    await settle(pilot)
    await attachment.take(pilot, 3)
    assert attachment.view.variant == "window-1"
    await pilot.press("v", "3")
    await attachment.until(pilot, lambda: not attachment.view.analysing)
    assert attachment.view.window.path.name == "w3.json"


async def test_old_windows_are_read_again(attachment, pilot) -> None:
    await attachment.take(pilot, 4)
    kept = [attachment.app._feeds.shown.windows.of(index) for index in range(4)]
    assert [window is None for window in kept] == [True, True, False, False]
    await pilot.press("v", "1")
    await attachment.until(pilot, lambda: not attachment.view.analysing)
    assert attachment.view.window.path.name == "w1.json"


async def test_a_selection_holds_its_window(attachment, pilot) -> None:
    await attachment.take(pilot, 1)
    attachment.app._focus.choose(OpPick(3), attachment.view)
    await attachment.take(pilot, 2)
    assert attachment.view.variant == "window-1"
    assert attachment.view.selection.pick == OpPick(3)
    assert "window-2 is here" in attachment.said


async def test_the_last_two_windows_are_compared(attachment, pilot) -> None:
    await attachment.take(pilot, 1)
    await pilot.press("D")
    await settle(pilot)
    assert attachment.view.comparison.result is None
    await attachment.take(pilot, 3)
    await pilot.press("D")
    await attachment.until(pilot, lambda: attachment.view.comparison.phase == "done")
    result = attachment.view.comparison.result
    assert result.base.source.path.endswith("w2.json")
    assert result.other.source.path.endswith("w3.json")
    assert attachment.view.page == "ab"
    sides = {Path(key[0]).name: side for key, side in attachment.view.comparison.sides.items()}
    assert sides == {"w1.json": "", "w2.json": "A", "w3.json": "B"}


async def test_windows_are_files(attachment, pilot, tmp_path: Path) -> None:
    await attachment.take(pilot, 2)
    await pilot.press("8")
    await settle(pilot)
    captured = [
        entry.path.name for entry in attachment.view.shelf.known if entry.place == "captured"
    ]
    assert captured == ["w2.json", "w1.json"]
    assert "ok" in attachment.shown


async def test_a_refused_window_is_one_line(attachment, pilot) -> None:
    attachment.door.refusals = [DecodescopeError("process 7: ended"), ValueError("a bug")]
    await pilot.press("t")
    await attachment.until(pilot, lambda: not attachment.view.attached.stage)
    assert "process 7: ended" in attachment.shown
    await pilot.press("t")
    await attachment.until(pilot, lambda: any("a bug" in line.text for line in attachment.view.log))
    await attachment.take(pilot, 1)
    assert attachment.view.window is not None


async def test_one_window_at_a_time(attachment, pilot) -> None:
    attachment.door.go.clear()
    await pilot.press("t")
    await attachment.until(pilot, lambda: attachment.view.attached.stage == "records 300 ms")
    assert "records 300 ms" in attachment.shown.splitlines()[0]
    await pilot.press("t", "t")
    await settle(pilot)
    assert "one at a time" in attachment.said
    attachment.door.go.set()
    await attachment.until(pilot, lambda: attachment.view.window is not None)
    assert attachment.door.taken == 1


async def test_the_ranks_of_a_window_are_merged(attachment, pilot, tmp_path: Path) -> None:
    run = a_run(2, 8, np.zeros(2, dtype=np.int64))
    attachment.door.write = lambda folder, number: rank_files(folder, run)
    await attachment.take(pilot, 1)
    assert [rank.rank for rank in attachment.view.window.ranks.ranks] == [0, 1]
    assert "rank0.json, rank1.json" in attachment.view.choices[0].summary


async def test_of_ranks_that_cannot_be_merged_the_first_is_shown(attachment, pilot) -> None:
    def twins(folder: Path, number: int) -> list[Path]:
        return [write_trace(folder / f"twin{rank}.json") for rank in range(2)]

    attachment.door.write = twins
    await attachment.take(pilot, 1)
    assert attachment.view.window.path.name == "twin0.json"
    assert attachment.view.window.ranks is None
    assert any("give one file for each rank" in line.text for line in attachment.view.log)


async def test_another_file_leaves_the_target_attached(attachment, pilot, tmp_path: Path) -> None:
    await attachment.take(pilot, 1)
    other = write_trace(tmp_path / "other.json")
    attachment.app._library.open(other, attachment.app._files._opened)
    await attachment.until(pilot, lambda: attachment.view.attached is None)
    assert not attachment.door.closed
    await pilot.press("8")
    await settle(pilot)
    assert "the windows of this session" in attachment.shown
    await attachment.app._files._back_to_live()
    await settle(pilot)
    assert attachment.view.variant == "window-1"


async def test_keys_that_mean_nothing_here_do_nothing(attachment, pilot) -> None:
    attachment.door.answers = [metrics(1)]
    await attachment.take(pilot, 1)
    before = attachment.view
    await pilot.press("p", "R", "x", "S")
    await settle(pilot)
    assert attachment.view.window is before.window
    assert attachment.view.state == before.state


async def test_a_server_without_windows_says_why(attachment) -> None:
    attachment.door.opens, attachment.door.price = False, "llama.cpp has no profile endpoint"
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        assert "llama.cpp has no profile endpoint" in attachment.shown
        assert "t takes a window" not in attachment.shown
        await pilot.press("t")
        await settle(pilot)
        assert "llama.cpp has no profile endpoint" in attachment.said
        assert attachment.view.attached.stage == ""
    assert attachment.door.taken == 0
