"""A comparison or a diff as tables for a terminal, from 60 columns on."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import plain_text
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.views.comparison_sections import Summary, comparison_summary, diff_summary
from decodescope.analyzer.views.pair_sections import Section

MIN_WIDTH = 60
_FIRST_COLUMN_CELLS = 16
_SPACE = 2


def comparison_table(comparison: Comparison) -> RenderableType:
    """Rates, ratios, accuracy, changes, ranges, waterfalls, findings and the gate."""
    return _SummaryTable(comparison_summary(comparison))


def diff_table(diff: Diff) -> RenderableType:
    """The ratio of speeds, changes, ranges, waterfalls, findings and the gate."""
    return _SummaryTable(diff_summary(diff))


class _SummaryTable:
    """Renders at the width it is given; what does not fit beside each other goes below."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, MIN_WIDTH)
        summary = self._summary
        yield _title(summary)
        for section in summary.sections:
            yield ""
            yield Text(plain_text(section.title), style="bold")
            for part in _fitting(section, width):
                yield _table(part)
            if section.note:
                yield Text(plain_text(section.note), style="dim")
        if summary.findings:
            yield ""
        for message in summary.findings:
            yield Text(f"note: {plain_text(message)}", style="yellow")
        if summary.gate:
            style = "bold red" if summary.failures else "bold"
            yield Text(f"\n{plain_text(summary.gate)}", style=style)
        for failure in summary.failures:
            yield Text(f"  {plain_text(failure)}", style="red")


def _title(summary: Summary) -> Text:
    text = Text(plain_text(summary.title), style="bold")
    if summary.weights_note:
        text.append(f" ({summary.weights_note})", style="bold yellow")
    for fact in summary.facts:
        text.append(f"\n{plain_text(fact)}", style="not bold")
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
    return Section(section.title, columns, tuple(rows), words=section.words)


def _table(section: Section) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _SPACE, 0, 0), header_style="dim")
    for index, column in enumerate(section.columns):
        justify = "left" if index == 0 or column in section.words else "right"
        table.add_column(
            Text(plain_text(column)),
            justify=justify,  # type: ignore[arg-type]
            no_wrap=index > 0,
            overflow="fold",
        )
    for row in section.rows:
        table.add_row(*(Text(plain_text(cell)) for cell in row))
    return table
