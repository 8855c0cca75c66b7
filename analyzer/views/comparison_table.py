"""A comparison or a diff: tables for a terminal from 60 columns on, and GitHub Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from rich.console import RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_sections import Section, Summary, summary_of
from decodescope.analyzer.views.table_parts import Fitted, plain_table

_FIRST_COLUMN_CELLS = 16
_SPACE = 2


# An underscore inside a word is not emphasis, and kernel and range names are full of them. GitHub
# makes a link of "://" and of "www.".
_SPECIAL = re.compile(
    r"[\\`*\[\]{}|#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def comparison_table(compared: Comparison | Diff) -> RenderableType:
    """Rates, ratios, accuracy, changes, ranges, waterfalls, findings and the gate; columns that do
    not fit side by side continue below."""
    return Fitted(partial(_parts, summary_of(compared)))


def _parts(summary: Summary, width: int) -> RenderResult:
    yield _title(summary)
    for section in summary.sections:
        yield ""
        yield Text(section.title, style="bold")
        yield from _fitting(section, width)
        if section.note:
            yield Text(section.note, style="dim")
    if summary.findings:
        yield ""
    for finding in summary.findings:
        yield Text(f"note: {finding.message}", style="yellow")
    if summary.gate:
        style = "bold red" if summary.failures else "bold"
        yield Text(f"\n{summary.gate_sentence}", style=style)
    for failure in summary.failures:
        yield Text(f"  {failure}", style="red")


def _title(summary: Summary) -> Text:
    text = Text(summary.title, style="bold")
    if summary.weights_note:
        text.append(f" ({summary.weights_note})", style="bold yellow")
    for fact in summary.facts:
        text.append(f"\n{fact}", style="not bold")
    return text


def _fitting(section: Section, width: int) -> Iterator[RichTable]:
    """The table in as many parts as its columns need; each part repeats the first column."""
    columns = section.table.shown()
    texts = [[column.cell(row) for row in section.table.rows] for column in columns]
    taken: list[int] = []
    room = 0
    for index in range(1, len(columns)):
        needed = _SPACE + max(map(len, (columns[index].heading, *texts[index])))
        if taken and room + needed > width - _FIRST_COLUMN_CELLS:
            yield _table(columns, texts, [0, *taken])
            taken, room = [], 0
        taken.append(index)
        room += needed
    yield _table(columns, texts, [0, *taken])


def _table(
    columns: Sequence[Column[Any]], texts: Sequence[Sequence[str]], taken: Sequence[int]
) -> RichTable:
    table = plain_table()
    for index in taken:
        table.add_column(
            Text(columns[index].heading),
            justify=columns[index].align,
            no_wrap=index > 0,
            overflow="fold",
        )
    for cells in zip(*(texts[index] for index in taken), strict=True):
        table.add_row(*map(Text, cells))
    return table


def comparison_markdown(compared: Comparison | Diff) -> str:
    """The contents of `comparison_table` as Markdown."""
    summary = summary_of(compared)
    title = f"## {_escaped(summary.title)}"
    if summary.weights_note:
        title += f" ({_escaped(summary.weights_note)})"
    blocks = [title, _list(summary.facts)]
    if summary.gate:
        sentence = f"**{_escaped(summary.gate_sentence)}**"
        blocks.append("\n\n".join(filter(None, (sentence, _list(summary.failures)))))
    for section in summary.sections:
        blocks += [f"### {_escaped(section.title)}", _markdown_table(section.table)]
        if section.note:
            blocks.append(_escaped(section.note))
    if summary.findings:
        blocks += ["### Findings", _list(finding.message for finding in summary.findings)]
    return "\n\n".join(blocks) + "\n"


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


def _markdown_table(table: Table[Any]) -> str:
    columns = table.shown()
    rules = ["--:" if column.kind.number else ":--" for column in columns]
    heads = [_escaped(column.heading) for column in columns]
    rows = [[_escaped(column.cell(row)) for column in columns] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _escaped(text: str) -> str:
    """`text` on one line, without anything that Markdown or HTML would interpret."""
    return _SPECIAL.sub(r"\\\g<0>", plain_line(text)).translate(_ENTITIES)
