"""The pictures in the documents; `python -m tools.make_pictures` draws them again. Look at them."""

import html
import re
import sys

import pytest

from decodescope.tui.pages.all_pages import PAGES
from tools import make_pictures


@pytest.mark.parametrize("name", make_pictures.PICTURES)
def test_the_committed_picture_is_current_and_needs_no_network(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_pictures", name, "-o", str(tmp_path)])
    make_pictures.main()
    drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == (make_pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"')]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert "tok/s" in drawn


def test_every_picture_is_in_the_documents():
    docs = make_pictures.FOLDER.parent
    shown = [
        set(re.findall(r"\(pictures/([a-z0-9-]+\.svg)\)", (docs / page).read_text("utf-8")))
        for page in ("app.md", "guide.md")
    ]
    assert {path.name for path in make_pictures.FOLDER.iterdir()} == shown[0] | shown[1]
    assert {f"{page.name}.svg" for page in PAGES} <= shown[0]


def test_an_unknown_picture_is_refused_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_pictures", "nothing"])
    with pytest.raises(SystemExit):
        make_pictures.main()
    assert "nothing: no such picture" in capsys.readouterr().err


def test_the_guides_figures_are_those_of_its_pictures():
    guide = (make_pictures.FOLDER.parent / "guide.md").read_text(encoding="utf-8")
    pictures = {
        "eager": "guide-eager",
        "compiled": "guide-compiled",
        "fused": "guide-fused",
        "fused+graph": "guide-fused-graph",
        "fused+graph+fp8_e4m3": "guide-fp8",
    }
    rows = re.findall(r"^\| \[`(\S+)`\]\(\S+\) \| (.*) \|$", guide, re.MULTILINE)
    assert [name for name, _ in rows] == list(pictures)
    for name, cells in rows:
        svg = (make_pictures.FOLDER / f"{pictures[name]}.svg").read_text(encoding="utf-8")
        strip = html.unescape(re.sub(r"<[^>]*>", " ", svg)).replace("\xa0", " ")
        rate, step, calls, ops, idle, share = cells.split(" | ")
        shown = (f"{rate} tok/s", f"p50 {step}", f"{ops} GPU ops", f"idle {idle}", f"now {share}")
        for figure in (*shown, f"{calls} launch"):
            assert re.search(r"\s+".join(map(re.escape, figure.split())), strip), figure
