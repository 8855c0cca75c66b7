"""A scripted worker, and a trace file as it captures one."""

from pathlib import Path

import pytest

from tests.helpers import scripted
from tests.helpers.app import idle


@pytest.fixture(autouse=True)
def _quick_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    idle.use_in(monkeypatch)


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A Kineto trace of three host-bound steps, as a worker captures it."""
    return scripted.write_trace(tmp_path / "window-0001.json")


@pytest.fixture
def session(tmp_path: Path) -> scripted.Session:
    """A live app with a scripted worker."""
    return scripted.Session(tmp_path)
