"""A recorded window that pages are read from."""

from pathlib import Path

import pytest

from tests.helpers.app import recorded


@pytest.fixture
def eager(tmp_path: Path) -> Path:
    """The last window of the bundled recording of `eager`, as a trace file."""
    return recorded.write_window(tmp_path, "eager")
