"""The pictures in the documents; `python -m tools.make_pictures` draws them again. Look at them."""

import re
import sys

import pytest

from decodescope.tui.pages.all_pages import PAGES
from tools import make_pictures


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_the_committed_picture_is_current_and_needs_no_network(page, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_pictures", page, "-o", str(tmp_path)])
    make_pictures.main()
    drawn = (tmp_path / f"{page}.svg").read_text(encoding="utf-8")
    assert drawn == (make_pictures.FOLDER / f"{page}.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"')]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert "launches" in drawn


def test_every_picture_is_in_the_documents():
    app = (make_pictures.FOLDER.parent / "app.md").read_text(encoding="utf-8")
    assert {path.name for path in make_pictures.FOLDER.iterdir()} == set(
        re.findall(r"\(pictures/([a-z]+\.svg)\)", app)
    )
    assert {f"{page.name}.svg" for page in PAGES} <= set(re.findall(r"\(pictures/(\S+)\)", app))
