"""The picture in the README; `python -m tools.make_screenshot` draws it again. Look at it."""

import re
import sys

from tools import make_screenshot


def test_the_committed_picture_is_current_and_needs_no_network(tmp_path, monkeypatch):
    path = tmp_path / "app.svg"
    monkeypatch.setattr(sys, "argv", ["make_screenshot", "-o", str(path)])
    make_screenshot.main()
    drawn = path.read_text(encoding="utf-8")
    assert drawn == make_screenshot.PICTURE.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"')]*", drawn) == ["http://www.w3.org/2000/svg"]
    for piece in ("launch-bound", "host_wait", "eager", "matmul"):
        assert piece in drawn
