"""Page 8: files of folders, recent, captured and bundled ones; opened without losing anything."""

import asyncio
import dataclasses
import threading
import time
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import Pause, Resume
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui import library
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.user_files import Memory
from decodescope.tui.once import draw_once
from decodescope.tui.panels.files import FilesPanel, PathPanel
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.files import names, typed
from tests.helpers.app.looks import Looks, after
from tests.helpers.kineto_events import call, document, op
from tests.helpers.scripted import Session, StillClock, ready, settle, text_of

DATA = Path(__file__).resolve().parents[2] / "data"

PATIENCE_S = 60.0


async def test_the_page_lists_the_folder_and_the_bundled_recordings(app, folder) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        shown = text_of(app)
        listed = names(app)
    assert (
        listed[-6:]
        == ["sub folder/", "state/", "broken.json", "notes.txt", "run-a.json", "run-b.json"][-6:]
        or "run-b.json" in listed
    )
    assert ".hidden.json" not in listed
    for path in bundled_recordings():
        assert f"{path.name}" in listed
    rows = {line.split()[1]: line.split() for line in shown.splitlines() if line.startswith("│ ")}
    assert rows["run-b.json"][2] == "kineto"
    assert "not a trace" in next(line for line in shown.splitlines() if "notes.txt" in line)
    assert rows["run-a.json"][-2] == "ok"
    assert "fused+graph+int8" in shown


async def test_enter_opens_a_trace_and_the_next_run_knows_it(app, folder) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "run-b")
        assert names(app) == ["run-b.json"]
        await pilot.press("enter")
        await settle(pilot)
        shown = text_of(app)
        await pilot.press("8")
        await settle(pilot)
        again = text_of(app)
    assert "run-b.json" in shown.splitlines()[0]
    assert "host-bound" in shown
    remembered = Memory(folder / "state" / "state.json").remembered
    assert remembered.recent == (str(folder / "run-b.json"),)
    assert "recent" in next(line for line in again.splitlines()[1:] if "run-b.json" in line)


async def test_a_recent_file_that_is_gone_is_not_listed(app, folder) -> None:
    gone = folder / "run-b.json"
    app._library.memory.opened([gone, folder / "elsewhere.json"])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("8")
        await settle(pilot)
        shown = text_of(app)
    assert "recent" in next(line for line in shown.splitlines() if "run-b.json" in line)
    assert "elsewhere.json" not in shown


async def test_tab_completes_and_folders_are_entered(app, folder) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "run")
        await pilot.press("tab")
        await settle(pilot)
        field = pilot.app.screen.query_one(PathPanel).field
        assert (field.value, names(app)) == ("run-", ["run-a.json", "run-b.json"])
        await typed(pilot, "su")
        await pilot.press("tab")
        await settle(pilot)
        assert (field.value, names(app)) == ("sub folder/", ["inner.json"])
        await pilot.press("i", "tab", "enter")
        await settle(pilot)
        assert "inner.json" in text_of(app).splitlines()[0]


async def test_tab_does_not_wait_for_a_folder_that_is_still_looked_into(app, monkeypatch) -> None:
    go = threading.Event()
    slow = library.listing
    monkeypatch.setattr(library, "listing", lambda folder: go.wait(PATIENCE_S) and slow(folder))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("o", *"sub", "tab")
        field = pilot.app.screen.query_one(PathPanel).field
        assert field.value == "sub folder/"
        go.set()
        await settle(pilot)
        assert names(app) == ["inner.json"]


async def test_hidden_files_appear_when_a_dot_is_typed(app) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, ".h")
        assert names(app) == [".hidden.json"]


@pytest.mark.parametrize(
    ("text", "said"), [("nowhere/x.json", "x.json: no such file"), ("~nobody/x", "no such file")]
)
async def test_a_path_that_does_not_exist_says_so_and_nothing_else_happens(app, text, said) -> None:
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, text)
        await pilot.press("enter")
        await settle(pilot)
        assert said in text_of(app)
        assert app.view().state == "trace"


async def test_an_empty_path_opens_nothing_and_a_folder_is_listed(app, folder) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("o", "enter")
        assert app.screen.query_one(FilesPanel).has_focus
        await typed(pilot, str(folder / "sub folder"))
        await pilot.press("enter")
        await settle(pilot)
        assert names(app) == ["inner.json"]
        await pilot.press("escape", "backspace")
        await settle(pilot)
        assert "run-a.json" in names(app)
        assert app._focus.shelf.problem == ""


async def test_marked_files_are_opened_together(app) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "run-")
        await pilot.press("escape", "home", "space", "space")
        await settle(pilot)
        assert "2 marked" in text_of(app)
        await pilot.press("enter")
        await settle(pilot)
        view = app.view()
    assert [choice.name for choice in view.choices] == ["run-a.json", "run-b.json", "all ranks"]
    assert view.variant == "run-a.json"
    assert view.window is not None
    assert app._focus.shelf.marked == ()


async def test_marked_ranks_of_one_run_are_opened_on_one_clock(app, folder) -> None:
    for rank in (0, 1):
        events = [call(1, 3, 5), op(10, 60 + rank, 5, name=f"kernel_of_{rank}")]
        keys = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": 10**18}
        (folder / f"rank{rank}.json").write_bytes(document(events, **keys))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, "rank")
        await pilot.press("escape", "home", "space", "space", "enter")
        await settle(pilot)
        view = app.view()
    assert view.variant == "all ranks"
    kernels = {kernel.name for kernel in view.window.report.kernels}
    assert kernels == {"kernel_of_0", "kernel_of_1"}


async def test_a_live_worker_waits_and_is_gone_back_to(session: Session, trace_file: Path) -> None:
    session.link.answers = True
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await typed(pilot, str(trace_file))
        await pilot.press("enter")
        await settle(pilot)
        trace = text_of(session.app)
        await pilot.press("8")
        await settle(pilot)
        await pilot.press("home", "enter")
        await settle(pilot)
        live = text_of(session.app)
    assert "window-0001.json" in trace.splitlines()[0]
    assert "47.2" not in trace
    assert session.link.sent == [Pause(), Resume()]
    assert "47.2" in live
    assert session.link.closed


async def test_a_worker_that_was_paused_is_still_paused_when_it_is_gone_back_to(
    session: Session, trace_file: Path
) -> None:
    session.link.answers = True
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await pilot.press("p")
        await typed(pilot, str(trace_file))
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press("8")
        await settle(pilot)
        await pilot.press("home", "enter")
        await settle(pilot)
        assert "paused" in text_of(session.app).splitlines()[0]
    assert Resume() not in session.link.sent


async def test_what_t_captured_is_listed(session: Session, trace_file: Path) -> None:
    async with session.app.run_test(size=(140, 40)) as pilot:
        await session.run(pilot, ready(trace_file, requested=True))
        await pilot.press("8")
        await settle(pilot)
        lines = text_of(session.app).splitlines()
        line = next(line for line in lines if "  captured " in line or " captured kineto" in line)
    assert "decodescope-eager-20260102-030405.json.gz" in line
    assert "kineto" in line


async def test_the_page_is_drawn_once_its_folder_is_read(app) -> None:
    lines = [line.text for line in await asyncio.to_thread(draw_once, app, 120, 40)]
    assert any("run-b.json" in line for line in lines)


async def test_the_page_looks_so(
    looks: Looks, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def app(traits: TerminalTraits) -> DecodescopeApp:
        source = TraceSource((folder / "run-a.json",))
        return DecodescopeApp(source, traits, StillClock(), folder, "files")

    async def typed_only(pilot) -> None:
        await settle(pilot)
        await typed(pilot, "run-")
        stay(pilot.app)

    async def marked(pilot) -> None:
        await after("escape", "space")(pilot)
        stay(pilot.app)

    def stay(app: DecodescopeApp) -> None:
        """Show a folder that is the same wherever the test runs."""
        focus = app._focus
        shelf = dataclasses.replace(focus.shelf, folder=Path("/traces"))
        focus.shelf = dataclasses.replace(shelf, pointed=Path("/traces/run-b.json"))

    await looks.walk(app, {"8 filter": typed_only, "8 files": marked})
