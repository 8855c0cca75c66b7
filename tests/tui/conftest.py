"""A scripted worker, and a trace file as it captures one."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers import scripted
from tests.helpers.app.looks import Looks


@pytest.fixture(autouse=True)
def _quick_pilot(quick_pilot: None) -> None:
    """Every app is driven in that way."""


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A Kineto trace of three host-bound steps, as a worker captures it."""
    return scripted.write_trace(tmp_path / "window-0001.json")


@pytest.fixture
def session(tmp_path: Path) -> scripted.Session:
    """A live app with a scripted worker."""
    return scripted.Session(tmp_path)


@pytest.fixture
def looks(snapshot: SnapshotAssertion) -> Looks:
    """Compares what an app shows at each stop of a walk with the committed screens."""
    return Looks(snapshot)
