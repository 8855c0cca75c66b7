"""What the documentation names is there."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import msgspec
import pytest

from decodescope.analyzer import schema

LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
FILE = re.compile(
    r"`((?:analyzer|benchmarks|examples|kernels|src|tests|tools|tui|variants)/[\w/.-]+)`"
)
MODULE = re.compile(r"`(decodescope(?:\.\w+)+)`")
WORD = re.compile(r"\S*\w\S*")
ONE_SITTING = (
    "api",
    "app",
    "architecture",
    "engines",
    "extending",
    "guide",
    "kernels",
    "recordings",
    "results",
)
# Historical: files of that time.
LOGS = ("CHANGELOG.md", "docs/decisions.md", "docs/experiments.md")


def pages(repository: Path) -> list[Path]:
    whole = (repository / "docs", repository / "examples")
    return [
        *(
            path
            for folder in (repository, repository / "benchmarks")
            for path in folder.glob("*.md")
        ),
        *(path for folder in whole for path in sorted(folder.rglob("*.md"))),
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


def test_a_page_can_be_read_in_one_sitting_and_all_of_them_in_a_day(repository: Path) -> None:
    docs = {path.relative_to(repository).as_posix(): path.read_text() for path in pages(repository)}
    lengths = {name: len(WORD.findall(text)) for name, text in docs.items()}
    for name in ONE_SITTING:
        assert lengths[f"docs/{name}.md"] <= 2_500, name
    assert lengths["README.md"] <= 1_500
    assert lengths["docs/usage.md"] <= 3_500
    assert sum(len(text.split()) for name, text in docs.items() if name[:5] == "docs/") <= 45_000


def test_each_statement_on_security_names_a_test(repository: Path) -> None:
    text = (repository / "docs/security.md").read_text()
    statements = re.findall(r"^- (.*?)(?=^- |^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(statements) > 25
    for statement in statements:
        named = re.search(r"\.\s+`(tests/[\w/]+\.py)::(test_\w+)`\s*\Z", statement)
        assert named, statement
        file, name = named.groups()
        code = (repository / file).read_text()
        assert re.search(rf"^(?:async )?def {name}\(", code, re.MULTILINE), statement


def test_each_decision_has_a_number_and_at_most_80_words(repository: Path) -> None:
    text = (repository / "docs/decisions.md").read_text()
    decisions = re.findall(r"^\*\*(\d+b?)\. .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    paragraphs = [part for part in text.split("\n\n") if re.match(r"\*\*\d+b?\. ", part)]
    assert len(decisions) == len(set(decisions)) == len(paragraphs) > 60
    assert [part for part in paragraphs if len(part.split()) > 80] == []


@pytest.mark.parametrize(
    ("way", "most"), [("The way of a trace", 12), ("The way of a decode step", 10)]
)
def test_the_ways_through_the_code_are_short(repository: Path, way: str, most: int) -> None:
    text = (repository / "docs/architecture.md").read_text()
    section = text.partition(f"## {way}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. \[[^]]+\]\(([^)]+)\)", section, re.MULTILINE)
    assert 5 <= len(steps) <= most
    assert all((repository / "docs" / step).is_file() for step in steps)


def test_every_term_is_listed_and_defined_once(repository: Path) -> None:
    text = (repository / "docs/terms.md").read_text()
    contents, _, definitions = text.partition("\n## ")
    listed = re.findall(r"\[[^]]+\]\(#([^)]+)\)", contents)
    assert len(listed) > 50
    defined = re.findall(r"^### (.+)$", definitions, re.MULTILINE)
    assert len(set(defined)) == len(defined)
    assert set(listed) <= anchors(repository / "docs/terms.md")
    assert len(listed) == len(set(listed)) == len(defined) + 1  # and the last table


def test_every_key_that_a_term_names_is_a_field_of_the_json(repository: Path) -> None:
    text = (repository / "docs/terms.md").read_text()
    named = {
        key
        for keys in re.findall(r"`JSON`:\s((?:`[\w.]+`(?:,\s)?(?: \([^)]*\))?)+)", text)
        for path in re.findall(r"`([\w.]+)`", keys)
        for key in path.split(".")
    }
    assert len(named) > 60
    assert sorted(named - set(_fields())) == []


def test_renamed_keys_are_listed_with_their_old_and_new_names(repository: Path) -> None:
    text = (repository / "docs/usage.md").read_text()
    table = text.partition("| before | version 3 |\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[1:]]
    old, new = ({name for row in rows for name in _last_keys(row[side])} for side in (0, 1))
    assert len(new) > 10
    fields = set(_fields())
    # These are keys again, or still, of other things.
    assert old & fields <= {"code", "kernels_ranked_by", "observer", "verdict", "waiting"}
    assert new <= fields


def _last_keys(cell: str) -> list[str]:
    """The last part of each key in a cell: `ns` of `gaps[].ns`."""
    return [key.rpartition(".")[2].removesuffix("[]") for key in re.findall(r"`([^`]+)`", cell)]


def _fields() -> Iterator[str]:
    """The names of all fields of the structures that are the JSON output."""
    for module in iter_modules(schema.__path__, f"{schema.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                yield from value.__struct_fields__


@pytest.mark.parametrize("heading", ["Add a kernel", "Add a weight format", "Add a variant"])
def test_the_guides_are_at_one_place(repository: Path, heading: str) -> None:
    holding = [page.name for page in pages(repository) if f"## {heading}\n" in page.read_text()]
    assert holding == ["extending.md"]
