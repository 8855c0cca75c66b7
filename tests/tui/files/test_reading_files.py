"""A file is read while keys work; what is broken says so and loses nothing."""

import asyncio
import gzip
import threading
import time
from pathlib import Path

import pytest

from decodescope.analyzer.readers.reading import load
from decodescope.tui import feeds, library
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.files import PathPanel
from tests.helpers.app.files import typed
from tests.helpers.scripted import StillClock, settle, text_of

PATIENCE_S = 60.0
DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.mark.parametrize("bad", ["broken.json", "notes.txt"])
async def test_a_file_that_cannot_be_read_leaves_what_was_shown(app, folder, bad) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = app.view()
        await typed(pilot, bad)
        await pilot.press("enter")
        await settle(pilot)
        shown = text_of(app)
        after = app.view()
        assert f"{folder / bad}: " in shown.replace("\n", "")
        assert "unreadable" in next(line for line in shown.splitlines()[8:] if bad in line)
        await pilot.press("escape", "1")
        await settle(pilot)
        assert "host-bound" in text_of(app)
    assert (after.window, after.state) == (before.window, "trace")
    assert any(line.level == "error" and bad in line.text for line in after.log)


async def test_a_truncated_file_says_so_where_it_is_opened(app, folder) -> None:
    whole = (folder / "run-b.json").read_bytes()
    (folder / "cut.json").write_bytes(whole[: len(whole) // 2])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "cut.json")
        await pilot.press("enter")
        await settle(pilot)
        shown = text_of(app)
        await pilot.press("8")
        await settle(pilot)
        await typed(pilot, str(folder / "cut"))
        again = text_of(app)
        log = [line.text for line in app.view().log]
    assert "⚠" in shown.splitlines()[0]
    assert "cut.json is degraded: the file ends early" in shown
    assert any("the file ends early" in line for line in log)
    assert "degraded" in next(line for line in again.splitlines()[9:] if "cut.json" in line)


real = library.analyse_files


async def test_enter_twice_quickly_reads_the_file_once(app, monkeypatch) -> None:
    read, go = [], threading.Event()

    def slow(paths, at, progress, given=None):
        read.append(paths)
        go.wait(PATIENCE_S)
        return real(paths, at, progress, given)

    monkeypatch.setattr(library, "analyse_files", slow)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "run-b.json")
        await pilot.press("enter", "enter", "enter")
        go.set()
        await settle(pilot)
        assert "run-b.json" in text_of(app).splitlines()[0]
        assert len(read) == 1
        await pilot.press("o", "enter", "enter", "o", "enter", "enter")
        await settle(pilot)
        assert app.crash is None


async def test_keys_work_while_a_file_is_read_and_the_last_wish_counts(
    app, folder, monkeypatch
) -> None:
    held = {"run-b.json": True}

    def slow(paths, at, progress, given=None):
        while held.get(paths[0].name):
            time.sleep(0.01)
        return real(paths, at, progress, given)

    monkeypatch.setattr(library, "analyse_files", slow)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "run-b.json")
        await pilot.press("enter")
        await pilot.pause()
        assert "reading run-b.json" in text_of(app)
        field = pilot.app.screen.query_one(PathPanel).field
        field.value = ""
        await pilot.press(*"sub")
        assert field.value == "sub"
        field.value = str(folder / "sub folder" / "inner.json")
        await pilot.pause()
        await pilot.press("enter")
        for _ in range(200):
            await asyncio.sleep(0.01)
            await pilot.pause()
            if "inner.json" in text_of(app).splitlines()[0]:
                break
        held.clear()
        await settle(pilot)
        assert "inner.json" in text_of(app).splitlines()[0]


async def test_how_much_of_a_file_was_read_is_shown(app, folder, monkeypatch) -> None:
    """Of the file that is opened, and of one that the command line named."""
    named = DecodescopeApp(TraceSource((folder / "run-a.json",)), clock=StillClock())
    for one, text in ((named, "reading: 40 %"), (app, "reading run-b.json, 40 %")):
        go = threading.Event()

        def half(paths, at, progress, given=None, *, go=go):
            progress(0.4)
            go.wait(PATIENCE_S)
            return real(paths, at, progress, given)

        monkeypatch.setattr(library if one is app else feeds, "analyse_files", half)
        async with one.run_test(size=(120, 40)) as pilot:
            if one is app:
                await settle(pilot)
                await typed(pilot, "run-b")
                await pilot.press("enter")
            for _ in range(200):
                await pilot.pause(0.01)
                if text in text_of(one):
                    break
            assert text in text_of(one)
            go.set()
            await settle(pilot)
            assert "host-bound" in text_of(one)
        monkeypatch.undo()


def test_the_share_of_a_file_that_was_read_grows_to_all_of_it(tmp_path: Path) -> None:
    whole = (DATA / "cpu_two_blocks.json.gz").read_bytes()
    plain = gzip.decompress(whole)
    (tmp_path / "large.json").write_bytes(b" " * (5 << 20) + plain)
    shares: list[float] = []
    assert load(tmp_path / "large.json", shares.append).source.format == "kineto"
    assert shares == sorted(shares)
    assert len(shares) >= 5
    assert shares[-1] == 1.0
