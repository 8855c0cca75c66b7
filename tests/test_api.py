"""The example of docs/api.md runs unchanged and prints the output on the page.

With --snapshot-update the page gets what it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import decodescope.analyzer


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_prints_the_output_on_the_page(
    repository: Path, pytestconfig: pytest.Config
) -> None:
    page = repository / "docs" / "api.md"
    (example,), (printed,) = blocks(page, "python"), blocks(page, "text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example, str(page), "exec"), {})
    if pytestconfig.option.update_snapshots:
        page.write_text(
            page.read_text().replace(f"```text\n{printed}```", f"```text\n{out.getvalue()}```")
        )
        return
    assert out.getvalue() == printed


def test_every_public_name_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "api.md").read_text()
    for name in decodescope.analyzer.__all__:
        assert re.search(rf"\b{name}\b", page), name
        assert getattr(decodescope.analyzer, name) is not None
