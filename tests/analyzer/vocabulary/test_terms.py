import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.vocabulary.terms import Term, find_term, read_terms, terms_in

FLOOR = "after call, if no longer than the kernel floor"
DOCUMENT = """# Terms

Before the first section.

| a | b |
|---|---|
| x | y |

## About time

### Busy

The `union` of *all* [ops](#gpu-op),
never a sum. `JSON`: `busy_ns`, `idle`.

### Classes

Each has a part:

| class | part |
|---|---|
| `host_wait` | before the **call** |
| `launch_call` | inside |

## Limits

### Verdict

The first that holds:

1. **memory**: near
   its peak.
2. none

## The same elsewhere

| a | b |
|---|---|
| x | y |
"""


def test_definitions_are_plain_text_with_one_line_for_each_item_and_row() -> None:
    assert list(terms_in(DOCUMENT)) == [
        Term("Busy", "About time", "The union of all ops, never a sum."),
        Term(
            "Classes",
            "About time",
            "Each has a part:\nhost_wait: before the call\nlaunch_call: inside",
        ),
        Term("Verdict", "Limits", "The first that holds:\n1. memory: near its peak.\n2. none"),
    ]


def test_the_package_carries_every_term_of_the_docs(repository: Path) -> None:
    text = (repository / "docs/terms.md").read_text()
    terms = read_terms()
    assert [f"### {term.name}" for term in terms] == [
        line for line in text.splitlines() if line.startswith("### ")
    ]
    for term in terms:
        assert len(term.definition) > 20, term.name
        assert not set("`|[") & set(term.definition), term.name
        assert "JSON:" not in term.definition, term.name


@pytest.mark.parametrize("change", [str.upper, str.title, lambda name: name.replace(" ", "_")])
def test_every_term_is_found_in_any_spelling(change: Callable[[str], str]) -> None:
    for term in read_terms():
        assert is_of(find_term(change(term.name)), term)
        for single, plural in (("step", "steps"), ("classes", "class"), ("part", "parts")):
            words = term.name.lower().split()
            if single in words:
                words[words.index(single)] = plural
                assert is_of(find_term(" ".join(words)), term)


def is_of(found: Term, term: Term) -> bool:
    return found.name == term.name and found.definition.startswith(term.definition)


def test_the_rows_of_a_definition_are_found_and_name_their_term() -> None:
    assert find_term("Launch calls").definition == "Gap classes: inside call"
    assert find_term("kernel_floor").definition.endswith("\nGap classes: " + FLOOR)
    assert find_term("memory").definition.startswith("Bound: bytes ÷ bandwidth")
    for name in (*GAP_CLASSES, *get_args(Bound)):
        assert find_term(name).name.lower().replace(" ", "_") == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stpe time", "the nearest: Step time"),
        ("latency", "the nearest: Launch latency"),
        ("zzzz", "`decodescope explain` lists all"),
        (" ", "' ': `decodescope explain` lists all"),
    ],
)
def test_an_unknown_term_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=re.escape(hint)):
        find_term(name)
