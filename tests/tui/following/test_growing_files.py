"""Page 8 while a run is recorded: its file is listed as such, and its name leads to it."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import growing_file, names_of
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.recordings.bundled import bundled_recordings, recording_head
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.shelf import GROWING, look
from decodescope.tui.model.sources import TraceSource, source_for
from decodescope.tui.model.user_files import Memory, Places
from decodescope.tui.panels.files import FilesPanel, PathPanel
from tests.helpers.scripted import StillClock, hello, settle, stats, text_of, write_trace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(tmp_path / "trace.json")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Iterator[RecordingWriter]:
    writer = RecordingWriter(folder / "run.dsrec")
    for message in (hello(), State("running", "eager"), stats(1)):
        writer.write(message)
    yield writer
    writer.close()


@pytest.fixture
def app(folder: Path) -> DecodescopeApp:
    places = Places(folder / "state" / "state.json", folder / "keymap.toml")
    source = TraceSource((folder / "trace.json",))
    return DecodescopeApp(source, clock=StillClock(), folder=folder, page="files", places=places)


def older(path: Path) -> None:
    """A finished recording."""
    writer = RecordingWriter(path)
    writer.write(stats(1, tokens_per_s=11.5))
    writer.close()


async def until(app: DecodescopeApp, pilot, condition) -> None:
    for _ in range(200):
        await settle(pilot)
        app.paint()
        if condition():
            return
    raise AssertionError(text_of(app))


async def open_by_path(pilot, text: str) -> None:
    await pilot.press("o")
    pilot.app.screen.query_one(PathPanel).field.value = text
    await settle(pilot)
    await pilot.press("enter")


def test_a_file_says_whether_a_run_writes_it_now(folder: Path, run: RecordingWriter) -> None:
    partial = folder / "run.dsrec.partial"
    entry = look(partial, "folder")
    assert (entry.kind, entry.about) == (GROWING, "eager · llama-3.2-1b@random · NVIDIA H200")
    recent = look(folder / "run.dsrec", "recent")
    assert (recent.kind, recent.path) == (GROWING, folder / "run.dsrec")
    run.close()
    assert look(folder / "run.dsrec", "recent").kind == "recording"
    assert "No such file" in look(partial, "recent").kind


async def test_the_list_says_so_and_its_rows_are_the_files_that_they_name(app, folder, run) -> None:
    older(folder / "run.dsrec")
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        rows = [line for line in text_of(app).splitlines() if "run.dsrec" in line]
        assert ["recording now" in row for row in rows] == ["partial" in row for row in rows]
        assert len(rows) == 2
        table = app.screen.query_one(FilesPanel)
        table.opened(("folder", folder / "run.dsrec"))
        await until(app, pilot, lambda: "11.5 tok/s" in text_of(app))
        assert "following" not in text_of(app)
        await pilot.press("8")
        await settle(pilot)
        table.opened(("folder", folder / "run.dsrec.partial"))
        await until(app, pilot, lambda: "47.2 tok/s" in text_of(app))
        assert "following" in text_of(app).splitlines()[0]


@pytest.mark.parametrize("existing", [False, True])
async def test_a_typed_name_means_the_run_that_will_have_it(app, folder, run, existing) -> None:
    if existing:
        older(folder / "run.dsrec")
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await open_by_path(pilot, str(folder / "run.dsrec"))
        await until(app, pilot, lambda: "47.2 tok/s" in text_of(app))
        assert "following" in text_of(app).splitlines()[0]
        assert "run.dsrec.partial" in text_of(app).splitlines()[0]


async def test_a_recent_name_leads_to_the_run_before_it_has_it(app, folder, run) -> None:
    Memory(folder / "state" / "state.json").opened([folder / "run.dsrec"])
    app._memory._read(folder / "state" / "state.json")
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        app.screen.query_one(FilesPanel).opened(("recent", folder / "run.dsrec"))
        await until(app, pilot, lambda: "47.2 tok/s" in text_of(app))
        assert "following" in text_of(app).splitlines()[0]


@pytest.mark.parametrize("runs", [1, 2])
def test_no_export_replaces_a_recording_that_is_followed_whatever_its_name_is(
    folder: Path, runs: int
) -> None:
    path = folder / "run.dsrec"
    writers = [RecordingWriter(path) for _ in range(runs)]
    source = source_for(growing_file(path))
    for writer in reversed(writers):
        with pytest.raises(InputError, match="is the input"):
            check_writable(path, "", source.paths)
        writer.write(stats(1))
        writer.close()
    with pytest.raises(InputError, match="is the input"):
        check_writable(path, "", source.paths)
    check_writable(folder / "run", "", source.paths)


@pytest.mark.parametrize(
    ("partial", "names"),
    [
        ("run.dsrec.partial", {"run.dsrec"}),
        ("run.dsrec-2.partial", {"run.dsrec", "run.dsrec-2"}),
        ("-2.partial", {"-2"}),
        ("run.dsrec", set()),
        (".partial", set()),
    ],
)
def test_the_names_that_a_growing_file_may_get(partial: str, names: set[str]) -> None:
    assert {path.name for path in names_of(Path("folder", partial))} == names


def test_bundled_recordings_are_as_old_as_their_runs() -> None:
    for path in bundled_recordings():
        head = recording_head(path)
        found = look(path, "bundled").modified_s
        assert found == datetime.fromisoformat(head.hello.environment["date"]).timestamp()


def test_a_bundled_recording_without_a_date_shows_none(folder: Path, run) -> None:
    partial = folder / "run.dsrec.partial"
    assert look(partial, "bundled").modified_s is None
    assert look(partial, "folder").modified_s == partial.stat().st_mtime
