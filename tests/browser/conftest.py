"""One browser for all tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.chromium import Browser, Tab


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    from tests.helpers.chromium import installed_program, running_browser

    program = installed_program()
    if program is None:
        pytest.skip("needs Chromium or Chrome on the PATH")
    with running_browser(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def open_page(browser: "Browser", tmp_path: Path) -> "Callable[[str], Tab]":
    """Shows HTML text in a tab of its own."""
    from tests.helpers.chromium import Tab

    def show(page: str) -> Tab:
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        tab = Tab(browser)
        tab.open(tmp_path / "page.html")
        return tab

    return show
