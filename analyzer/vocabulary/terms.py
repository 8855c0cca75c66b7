"""The terms of docs/terms.md, which the package carries as terms.md."""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import chain, takewhile
from typing import get_args

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.vocabulary.words import bound_words, part_words

_NEAREST = 5
_PLURAL = re.compile(r"(?<=ss)es\b|(?<![su\W])s\b")


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


def find_term(name: str, columns: Iterable[Term] = ()) -> Term:
    """The term of a name, with the rows of other definitions' tables that begin with it, or such a
    row (`host_wait`, also by its words: "waiting for the host"), or one of the `columns`. Case,
    plurals, and "_" or "-" for a space do not matter.

    Raises:
        InputError: there is none; the message names the nearest terms.
    """
    by_key: dict[str, Term] = {}
    rows = chain.from_iterable(map(_rows, read_terms()))
    for term in (*read_terms(), *rows, *columns):
        known = by_key.setdefault(_key(term.name), term)
        if known is not term:
            definition = f"{known.definition}\n{term.definition}"
            by_key[_key(term.name)] = replace(known, definition=definition)
    key = _key(name)
    if key in by_key:
        return by_key[key]
    holding = [known for known in by_key if key and key in known]
    word = re.compile(rf"\b{re.escape(name.strip())}\b", re.IGNORECASE)
    holding += [_key(term.name) for term in read_terms() if key and word.search(term.definition)]
    similar = difflib.get_close_matches(key, by_key, n=_NEAREST, cutoff=0.6)
    near = list(dict.fromkeys(holding + similar))[:_NEAREST]
    names = ", ".join(by_key[known].name for known in near)
    hint = f"the nearest: {names}" if near else "`decodescope explain` lists all"
    raise InputError(f"no term {name.strip() or repr(name)}: {hint}")


def _key(name: str) -> str:
    """A form of the name that its plural and its spellings share."""
    return _PLURAL.sub("", " ".join(re.split(r"[\s_-]+", name.casefold().strip())))


def _rows(term: Term) -> Iterator[Term]:
    """The rows of the tables of a definition, as terms."""
    bounds = {bound: bound_words(bound) for bound in get_args(Bound)}
    for line in term.definition.splitlines()[1:]:
        name, _, definition = line.partition(": ")
        for spelling in dict.fromkeys((name, bounds.get(name, part_words(name)))):
            yield Term(spelling, term.section, f"{term.name}: {definition}")


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
