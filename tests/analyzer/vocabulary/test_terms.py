from pathlib import Path

from decodescope.analyzer.vocabulary.terms import Term, read_terms, terms_in

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
