"""A folder of files, and the app on the page that lists them."""

import os
from pathlib import Path

import pytest

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.user_files import Places
from tests.helpers.scripted import StillClock, write_trace


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
