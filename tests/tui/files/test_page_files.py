"""Page 8: files of folders, recent, captured and bundled ones; opened without losing anything."""

import asyncio
import gzip
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decodescope.analyzer.protocol import Pause, Resume
from decodescope.analyzer.readers.reading import format_of, load
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui import background, library
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.memory import Memory, Places
from decodescope.tui.model.shelf import FOLDER, Entry, Shelf, folder_of, listing, look
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.once import draw_once
from decodescope.tui.panels.files import FilesPanel, PathPanel
from tests.helpers.foreign import rocprof_files
from tests.helpers.kineto_events import call, document, op
from tests.helpers.scripted import Session, StillClock, ready, settle, text_of, write_trace

PATIENCE_S = 60.0
DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Traces, a folder, a hidden file, and what is no trace."""
    write_trace(tmp_path / "run-a.json")
    write_trace(tmp_path / "run-b.json", "compiled")
    (tmp_path / "broken.json").write_text('{"traceEvents": 3}')
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / ".hidden.json").write_text("{}")
    (tmp_path / "sub folder").mkdir()
    write_trace(tmp_path / "sub folder" / "inner.json")
    for path in tmp_path.rglob("*"):
        os.utime(path, (1_780_000_000, 1_780_000_000))
    return tmp_path


@pytest.fixture
def app(folder: Path) -> DecodescopeApp:
    places = Places(folder / "state" / "state.json", folder / "keymap.toml")
    source = TraceSource((folder / "run-a.json",))
    return DecodescopeApp(source, clock=StillClock(), folder=folder, page="files", places=places)


async def typed(pilot, text: str) -> None:
    """Type a path as a user who pastes it."""
    await pilot.press("o")
    field = pilot.app.screen.query_one(PathPanel).field
    assert field.has_focus
    field.value = text
    await settle(pilot)


def names(app: DecodescopeApp) -> list[str]:
    return [entry.name for entry in app._focus.shelf.visible()]


async def test_the_page_lists_the_folder_and_the_bundled_recordings(app, folder) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        shown = text_of(app)
        listed = names(app)
    assert listed[-6:] == ["sub folder/", "state/", "broken.json", "notes.txt", "run-a.json",
                           "run-b.json"][-6:] or "run-b.json" in listed  # fmt: skip
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
    assert "launch-bound" in shown
    remembered = Memory(folder / "state" / "state.json").remembered
    assert remembered.recent == (str(folder / "run-b.json"),)
    assert "recent" in next(line for line in again.splitlines()[1:] if "run-b.json" in line)


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


async def test_tab_waits_for_a_folder_that_is_still_read(app, monkeypatch) -> None:
    go = threading.Event()
    slow = library.listing
    monkeypatch.setattr(library, "listing", lambda folder: go.wait(PATIENCE_S) and slow(folder))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("o", *"sub", "tab")
        field = pilot.app.screen.query_one(PathPanel).field
        assert field.value == "sub"
        go.set()
        await settle(pilot)
        assert field.value == "sub folder/"


async def test_hidden_files_appear_when_a_dot_is_typed(app) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await typed(pilot, ".h")
        assert names(app) == [".hidden.json"]


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
        assert "launch-bound" in text_of(app)
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


real = library.analyse_files


async def test_enter_twice_quickly_reads_the_file_once(app, monkeypatch) -> None:
    read, go = [], threading.Event()

    def slow(paths, at, progress):
        read.append(paths)
        go.wait(PATIENCE_S)
        return real(paths, at, progress)

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

    def slow(paths, at, progress):
        while held.get(paths[0].name):
            time.sleep(0.01)
        return real(paths, at, progress)

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

        def half(paths, at, progress, go=go):
            progress(0.4)
            go.wait(PATIENCE_S)
            return real(paths, at, progress)

        monkeypatch.setattr(library if one is app else background, "analyse_files", half)
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
            assert "launch-bound" in text_of(one)
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
        keys = {"distributedInfo": {"rank": rank, "world_size": 2},
                "baseTimeNanoseconds": 10**18}  # fmt: skip
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


def test_every_format_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    process = rocprof_files.Process()
    process.kernel(30, 230, 1)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "toml").write_text("[tool]\nx = 1")
    (tmp_path / "db").write_bytes(b"SQLite format 3\x00" + bytes(100))
    (tmp_path / "zip").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b'{"traceEvents": []}')[:-3])
    found = {
        "rocprof": rocprof_files.write(tmp_path / "7_results.json", process),
        "recording": bundled_recordings()[0],
        "kineto": DATA / "cpu_two_blocks.json.gz",
        "nsys": tmp_path / "db",
    }
    assert {name: format_of(Path(path)) for name, path in found.items()} == {n: n for n in found}
    assert [format_of(tmp_path / one) for one in ("toml", "zip")] == ["", ""]
    assert format_of(tmp_path / "cut.gz") == "kineto"


def test_a_folder_with_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b broken")
    kinds = {entry.name: entry.kind for entry in listing(tmp_path)}
    assert kinds == {"fifo": "not a trace", "gone": "No such file or directory",
                     "broken.gz": "not a trace"}  # fmt: skip
    assert look(tmp_path / "none", "recent").kind == "No such file or directory"
    with pytest.raises(OSError, match="none"):
        listing(tmp_path / "none")


@given(
    typed_=st.text(alphabet="aA./~ _-é\n", max_size=12),
    found=st.lists(st.text(alphabet="aAb._é", min_size=1, max_size=6), unique=True, max_size=6),
)
@example(typed_="A//", found=["A", "_"])
def test_completing_only_adds_and_keeps_every_match(typed_: str, found: list[str]) -> None:
    entries = tuple(Entry(Path("/x") / name, "folder", FOLDER) for name in found)
    shelf = Shelf(typed_, listed=entries)
    done = shelf.completed()
    before = set(shelf.visible())
    after = set(Shelf(done.removesuffix("/") if done != typed_ else done, listed=entries).visible())
    assert len(done) >= len(typed_)
    assert after == before
    assert folder_of(typed_, Path("/y")).is_absolute()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50)])
def test_the_page_looks_so(snap_compare, monkeypatch, app, folder, size) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    async def act(pilot) -> None:
        await settle(pilot)
        await typed(pilot, "run-")
        await pilot.press("escape", "space")
        await settle(pilot)
        app._focus.shelf = app._focus.shelf.__class__(
            **{**{name: getattr(app._focus.shelf, name) for name in app._focus.shelf.__slots__},
               "folder": Path("/traces"), "pointed": Path("/traces/run-b.json")}
        )  # fmt: skip
        app.paint()
        await settle(pilot)

    assert snap_compare(app, terminal_size=size, run_before=act)
