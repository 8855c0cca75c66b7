"""The packages that an install brings: none without use, none with a fault that is known here."""

import re
import tomllib
from pathlib import Path

import pytest

IMPORTED_AS = {
    "backports-zstd": "backports",
    "jinja2": "jinja2",
    "markdown-it-py": "markdown_it",
    "nvidia-ml-py": "pynvml",
    "prometheus-client": "prometheus_client",
    "rich-click": "rich_click",
    "textual-serve": "textual_serve",
}
# The first version without the fault: a sandbox that templates leave, memory without bound, code
# that a checkpoint runs although only weights are asked for.
REPAIRED = {"jinja2": (3, 1, 6), "aiohttp": (3, 13, 3), "torch": (2, 6)}
ROOMS = ("analyzer", "attach", "kernels", "tui", "variants", "src/decodescope/cli")


@pytest.fixture
def least(repository: Path) -> dict[str, tuple[int, ...]]:
    """The least version of each package, but for those of development."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name != "dev"]
    found = {}
    for line in sum(extras, project["dependencies"]):
        name, version = re.match(r"([\w-]+)>=([\d.]+)", line).groups()  # type: ignore[union-attr]
        found[name] = tuple(map(int, version.split(".")))
    return found


def test_each_package_is_imported(repository: Path, least: dict[str, tuple[int, ...]]) -> None:
    files = [path for room in ROOMS for path in (repository / room).rglob("*.py")]
    text = "\n".join(path.read_text() for path in files)
    names = {name: IMPORTED_AS.get(name, name) for name in least}
    unused = [
        name
        for name, module in names.items()
        if not re.search(rf'^\s*(import|from) {module}\b|import_module\("{module}"', text, re.M)
    ]
    assert unused == []


def test_versions_with_a_known_fault_are_excluded(least: dict[str, tuple[int, ...]]) -> None:
    assert all(least[name] >= version for name, version in REPAIRED.items())
