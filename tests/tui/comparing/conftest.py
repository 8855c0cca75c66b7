"""The A/B page over a scripted comparison."""

from pathlib import Path

import pytest

from tests.tui.comparing.page import Page


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)
