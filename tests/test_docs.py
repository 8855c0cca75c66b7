"""What the documentation names is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
FILE = re.compile(
    r"`((?:analyzer|benchmarks|examples|kernels|src|tests|tools|tui|variants)/[\w/.-]+)`"
)
MODULE = re.compile(r"`(decodescope(?:\.\w+)+)`")
# Historical: files of that time.
LOGS = ("CHANGELOG.md", "docs/decisions.md", "docs/experiments.md")


def pages(repository: Path) -> list[Path]:
    folders = (repository, repository / "docs", repository / "benchmarks", repository / "examples")
    return [
        *(path for folder in folders[:3] for path in sorted(folder.glob("*.md"))),
        *sorted(folders[3].rglob("*.md")),
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


def test_every_link_leads_somewhere(repository: Path) -> None:
    found, broken = 0, []
    for page in pages(repository):
        for target, anchor in LINK.findall(page.read_text()):
            found += 1
            file = page if not target else (page.parent / target)
            missing = not file.exists() or (anchor and anchor not in anchors(file))
            if missing:
                broken.append(f"{page.name}: {target}#{anchor}")
    assert found > 40
    assert broken == []


def test_every_file_and_module_that_a_page_names_is_there(repository: Path) -> None:
    found, missing = 0, []
    for page in pages(repository):
        if page.relative_to(repository).as_posix() in LOGS:
            continue
        text = page.read_text()
        for name in FILE.findall(text):
            found += 1
            if not any((folder / name).exists() for folder in (repository, page.parent)):
                missing.append(f"{page.name}: {name}")
        for name in MODULE.findall(text):
            found += 1
            if not _importable(name):
                missing.append(f"{page.name}: {name}")
    assert found > 60
    assert missing == []


def _importable(name: str) -> bool:
    """Whether this is a module, or what one has."""
    module, _, attribute = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return hasattr(import_module(module), attribute)
    return True


@pytest.mark.parametrize("heading", ["Add a kernel", "Add a weight format", "Add a variant"])
def test_the_guides_are_at_one_place(repository: Path, heading: str) -> None:
    holding = [page.name for page in pages(repository) if f"## {heading}\n" in page.read_text()]
    assert holding == ["extending.md"]
