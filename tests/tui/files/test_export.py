"""`e`: what is shown as a file or on the clipboard; whole or not at all."""

import csv
import io
import os
import resource
from pathlib import Path

import pytest
from textual.widgets import Static

from decodescope.analyzer import analyze, load
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.screens.dialogs import Choices
from decodescope.tui.screens.export import EXPORTABLES, ExportScreen, TargetInput
from tests.helpers.scripted import Session, StillClock, settle, text_of

# Those of a comparison are offered on its page only.
OFFERED = tuple(one for one in EXPORTABLES if one.of != "comparison")
STEM = "decodescope-window-0001-20260102-030405"


@pytest.fixture
def app(trace_file: Path, tmp_path: Path) -> DecodescopeApp:
    (tmp_path / "out").mkdir()
    return DecodescopeApp(TraceSource((trace_file,)), clock=StillClock(), folder=tmp_path / "out")


def problem(app: DecodescopeApp) -> str:
    return str(app.screen.query_one(".problem", Static).content)


async def choose(pilot, kind: str) -> TargetInput:
    """Open the dialog at this kind."""
    await pilot.press("e")
    await pilot.pause()
    assert isinstance(pilot.app.screen, ExportScreen)
    place = [one.kind for one in OFFERED].index(kind)
    await pilot.press(*["down"] * place)
    await pilot.pause()
    assert pilot.app.screen.query_one(Choices).highlighted == place
    return pilot.app.screen.query_one(TargetInput)


@pytest.mark.parametrize("one", OFFERED[:6], ids=lambda one: one.kind)
async def test_each_kind_is_written_under_the_name_that_is_shown(app, trace_file, one) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, one.kind)
        target = trace_file.parent / "out" / f"{STEM}{one.ending}"
        assert field.value == str(target)
        await pilot.press("enter")
        await settle(pilot)
        log = [line.text for line in app.view().log]
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert f"export written to {target}" in log
    report = analyze(load(trace_file)).report
    if one.kind == "chrome":
        again = analyze(load(target)).report
        assert again.kernels == report.kernels
    elif one.kind == "html":
        assert target.read_text().rstrip().endswith("</html>")
    elif one.kind == "svg":
        assert "<svg" in target.read_text()
        assert "Export" not in target.read_text()
    elif one.kind == "kernel":
        rows = list(csv.DictReader(io.StringIO(target.read_text())))
        assert len(rows) == len(report.kernels)


async def test_the_text_of_the_page_goes_to_the_clipboard(app) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, "text")
        assert not field.display
        await pilot.press("enter")
        await settle(pilot)
        assert "host-bound" in app.clipboard


async def test_an_existing_file_is_asked_about_and_the_input_is_never_written(
    app, trace_file
) -> None:
    before = trace_file.read_bytes()
    kept = trace_file.parent / "out" / "kept.csv"
    kept.write_text("mine")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, "kernel")
        field.value = str(trace_file)
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert "is the input" in problem(app)
        field.value = "kept.csv"
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert "kept.csv exists; enter once more" in problem(app)
        field.value = "other.csv"
        await pilot.pause()
        field.value = "kept.csv"
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert kept.read_text() == "mine"
        await pilot.press("enter")
        await settle(pilot)
    assert kept.read_text().startswith("name,short_name,count")
    assert trace_file.read_bytes() == before


async def test_tab_completes_folders(app, tmp_path) -> None:
    (tmp_path / "results of may").mkdir()
    (tmp_path / "result.csv").write_text("")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, "gap")
        field.focus()
        field.value = str(tmp_path / "res")
        await pilot.press("tab")
        await pilot.pause()
        assert field.value == f"{tmp_path}/results of may/"
        await pilot.press(*"gaps")
        await pilot.press("enter")
        await settle(pilot)
    assert (tmp_path / "results of may" / "gaps").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_an_unwritable_folder_is_one_line(app, tmp_path) -> None:
    (tmp_path / "out").chmod(0o500)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await choose(pilot, "html")
        await pilot.press("enter")
        await pilot.pause()
        assert "is not writable" in problem(app)


async def test_a_folder_that_does_not_exist_is_one_line(app, tmp_path) -> None:
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, "html")
        field.value = "none/x.html"
        await pilot.press("enter")
        await pilot.pause()
        assert "does not exist; make it first" in problem(app)


@pytest.mark.parametrize("kind", ["chrome", "html", "kernel", "svg"])
async def test_a_full_disk_leaves_no_half_file_and_the_old_one(app, tmp_path, kind) -> None:
    old = tmp_path / "out" / "old"
    old.write_text("mine")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        field = await choose(pilot, kind)
        field.value = str(old)
        await pilot.pause()
        await pilot.press("enter")
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
            await pilot.press("enter")
            await settle(pilot)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        log = [line.text for line in app.view().log if line.level == "error"]
        assert app.crash is None
    assert [path.name for path in old.parent.iterdir()] == ["old"]
    assert old.read_text() == "mine"
    assert len(log) == 1
    assert "export not written" in log[0]
    assert str(old) in log[0]


async def test_without_a_window_only_the_screen_can_be_exported(session: Session) -> None:
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await pilot.press("e")
        await pilot.pause()
        shown = text_of(session.app)
    assert "picture of the screen" in shown
    assert "Chrome" not in shown


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (30, 6), (60, 16)])
async def test_the_dialog_works_in_any_size(app, size) -> None:
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("e", "pagedown", "pageup", "down", "tab", "x", "escape")
        assert app.crash is None
