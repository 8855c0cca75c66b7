"""The example of docs/api.md runs unchanged and prints the output on the page."""

import contextlib
import io
import re
from pathlib import Path

import decodescope.analyzer


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_prints_the_output_on_the_page(repository: Path) -> None:
    page = repository / "docs" / "api.md"
    (example,), (printed,) = blocks(page, "python"), blocks(page, "text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example, str(page), "exec"), {})
    assert out.getvalue() == printed


def test_every_public_name_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "api.md").read_text()
    for name in decodescope.analyzer.__all__:
        assert re.search(rf"\b{name}\b", page), name
        assert getattr(decodescope.analyzer, name) is not None
