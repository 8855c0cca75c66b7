"""The terms of docs/terms.md, which the package carries as terms.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import takewhile

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode


@dataclass(frozen=True, slots=True)
class Term:
    """A term, the heading of its section, and its definition as plain text: paragraphs, items of
    lists and rows of tables, each in a line of its own."""

    name: str
    section: str
    definition: str


@cache
def read_terms() -> tuple[Term, ...]:
    """All terms, in the order of the document."""
    text = files("decodescope").joinpath("terms.md").read_text(encoding="utf-8")
    return tuple(terms_in(text))


def terms_in(markdown: str) -> Iterator[Term]:
    """The terms of a document: headings of the third level, in sections of the second."""
    section, name = "", ""
    lines: list[str] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    for node in SyntaxTreeNode(tokens).children:
        if node.tag in ("h2", "h3"):
            if name:
                yield Term(name, section, "\n".join(lines))
            section, name = (_text(node), "") if node.tag == "h2" else (section, _text(node))
            lines = []
        else:
            lines += filter(None, _lines(node))
    if name:
        yield Term(name, section, "\n".join(lines))


def _lines(block: SyntaxTreeNode) -> Iterator[str]:
    if block.type == "table":
        for row in block.children[-1].children:
            yield ": ".join(_text(cell) for cell in row.children)
    elif block.type == "ordered_list":
        for number, item in enumerate(block.children, 1):
            yield f"{number}. {_text(item.children[0])}"
    else:
        yield _text(block)


def _text(block: SyntaxTreeNode) -> str:
    """The text of a block without its marks, up to the JSON keys that end a definition."""
    spans = block.to_tokens()[1].children or ()
    shown = takewhile(lambda span: (span.type, span.content) != ("code_inline", "JSON"), spans)
    return "".join(" " if span.type == "softbreak" else span.content for span in shown).strip()
