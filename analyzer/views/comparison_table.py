"""A comparison or a diff as tables for a terminal, from 60 columns on."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.console import RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.views.comparison_sections import Summary, summary_of
from decodescope.analyzer.views.pair_sections import Section
from decodescope.analyzer.views.table_parts import Fitted, plain_table

_FIRST_COLUMN_CELLS = 16
_SPACE = 2


def comparison_table(compared: Comparison | Diff) -> RenderableType:
    """Rates, ratios, accuracy, changes, ranges, waterfalls, findings and the gate; columns that do
    not fit side by side continue below."""
    return Fitted(partial(_parts, summary_of(compared)))


def _parts(summary: Summary, width: int) -> RenderResult:
    yield _title(summary)
    for section in summary.sections:
        yield ""
        yield Text(section.title, style="bold")
        for part in _fitting(section, width):
            yield _table(part)
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


def _fitting(section: Section, width: int) -> Iterator[Section]:
    """The section in as many parts as its columns need; each part repeats the first column."""
    taken: list[int] = []
    room = 0
    for index in range(1, len(section.columns)):
        needed = _SPACE + max(len(row[index]) for row in (section.columns, *section.rows))
        if taken and room + needed > width - _FIRST_COLUMN_CELLS:
            yield _columns(section, taken)
            taken, room = [], 0
        taken.append(index)
        room += needed
    yield _columns(section, taken)


def _columns(section: Section, taken: list[int]) -> Section:
    columns, *rows = (
        (row[0], *(row[index] for index in taken)) for row in (section.columns, *section.rows)
    )
    return replace(section, columns=columns, rows=tuple(rows))


def _table(section: Section) -> Table:
    table = plain_table()
    for index, column in enumerate(section.columns):
        table.add_column(
            Text(column),
            justify="left" if index == 0 or column in section.words else "right",
            no_wrap=index > 0,
            overflow="fold",
        )
    for row in section.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
