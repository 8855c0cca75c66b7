"""A comparison or a diff as GitHub Markdown, for a pull request."""

import re
from collections.abc import Iterable
from typing import Any

from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_sections import summary_of

# An underscore inside a word is not emphasis, and kernel and range names are full of them. GitHub
# makes a link of "://" and of "www.".
_SPECIAL = re.compile(
    r"[\\`*\[\]{}|#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def comparison_markdown(compared: Comparison | Diff) -> str:
    """What `comparison_table` shows, as Markdown."""
    summary = summary_of(compared)
    title = f"## {_escaped(summary.title)}"
    if summary.weights_note:
        title += f" ({_escaped(summary.weights_note)})"
    blocks = [title, _list(summary.facts)]
    if summary.gate:
        sentence = f"**{_escaped(summary.gate_sentence)}**"
        blocks.append("\n\n".join(filter(None, (sentence, _list(summary.failures)))))
    for section in summary.sections:
        blocks += [f"### {_escaped(section.title)}", _table(section.table)]
        if section.note:
            blocks.append(_escaped(section.note))
    if summary.findings:
        blocks += ["### Findings", _list(finding.message for finding in summary.findings)]
    return "\n\n".join(blocks) + "\n"


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


def _table(table: Table[Any]) -> str:
    columns = table.shown()
    rules = ["--:" if column.unit.number else ":--" for column in columns]
    heads = [_escaped(column.heading) for column in columns]
    rows = [[_escaped(column.cell(row)) for column in columns] for row in table.rows]
    return "\n".join(_row(row) for row in (heads, rules, *rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """`text` on one line, without anything that Markdown or HTML would interpret."""
    return _SPECIAL.sub(r"\\\g<0>", plain_line(text)).translate(_ENTITIES)
