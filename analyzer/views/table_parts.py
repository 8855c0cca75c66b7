"""Parts of every output for a terminal: declared tables, sections, the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from decodescope.analyzer.names.fitted_names import told_apart
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.tables.columns import Column, Row, Table, Tone, kept_with_details
from decodescope.analyzer.vocabulary.answer_words import AnswerLines

MIN_WIDTH = 60
_GAP, _INDENT = 2, 2
# Cells in which the short name of most kernels fits.
_COMFORTABLE = 48
_STYLES: dict[Tone, str] = {"dim": "dim", "strong": "bold"}


@dataclass(frozen=True, slots=True)
class Fitted:
    """Renders what `parts` yields for the width of the terminal, but at least `MIN_WIDTH`."""

    parts: Callable[[int], RenderResult]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts(max(options.max_width, MIN_WIDTH))


def plain_table() -> RichTable:
    return RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def facts(rows: Mapping[str, str]) -> RichTable:
    """Names, each with what is known, one to a row; long texts wrap."""
    table = plain_table()
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for row in rows.items():
        table.add_row(*row)
    return table


def section(title: str, *content: RenderableType) -> Iterator[RenderableType]:
    """A blank line, the title, and the content below it."""
    yield ""
    yield Text(title, style="bold")
    yield from content


def answer_block(
    lines: AnswerLines,
    answer: Answer,
    width: int,
    most: int | None = None,
    kernels: Sequence[KernelReport] = (),
) -> Iterator[RenderableType]:
    """The lines of an answer around the table of its first `most` parts, with the short names of
    all `kernels`. Of some parts, only the reason that decides."""
    yield Text(f"\n{lines.headline}", style="bold")
    yield from (Text(line, style="yellow") for line in lines.refused)
    if answer.parts:
        table = rich_table(answer_table(answer, most, kernels), width - _INDENT)
        yield Padding(table, (0, 0, 0, _INDENT))
    decides, *others = lines.reasons or ("",)
    yield from map(Text, filter(None, (decides, lines.host)))
    yield from map(Text, others if most is None else ())
    yield from (Text(f"→ {line}", style="bold") for line in lines.next)
    if lines.apart:
        yield Text(f"set apart: {lines.apart}", style="dim")


def rich_table(table: Table[Row], width: int) -> RenderableType:
    """The columns that fit in `width`, the least important dropped first; a last line says how many
    rows are left out. A flexible column has the room that the others leave."""
    columns = [*table.shown(), *_bars(table)]
    cells = [_cells(table, column, width) for column in columns]
    natural = [
        max(map(cell_len, (column.heading, *texts)))
        for column, texts in zip(columns, cells, strict=True)
    ]
    shown = _fitting(columns, natural, width)
    fixed = sum(natural[place] for place in shown if not columns[place].flexible)
    flexible = [place for place in shown if columns[place].flexible]
    room = (width - fixed - _GAP * (len(shown) - 1)) // max(len(flexible), 1)
    drawn = plain_table()
    for place in shown:
        column = columns[place]
        drawn.add_column(
            column.heading,
            justify=column.align,
            no_wrap=not column.wrap,
            max_width=room if column.wrap else None,
        )
        if column.flexible and natural[place] > room:
            cells[place] = _cells(table, column, room)
    for number, row in enumerate(table.rows):
        style = _STYLES.get(table.tone(row)) if table.tone is not None else None
        drawn.add_row(*(Text(cells[place][number]) for place in shown), style=style)
    if not table.more:
        return drawn
    noun = f" {table.noun}" if table.more > 1 else ""
    return Group(drawn, Text(f"and {table.more} more{noun}", style="dim"))


def _cells(table: Table[Row], column: Column[Row], room: int) -> list[str]:
    """The texts of a column; in a tree, the first one is indented. Texts that differ whole differ
    also where they are cut."""
    if not column.flexible or column.wrap:
        return [column.cell(row) for row in table.rows]
    depth = table.depth if column is table.columns[0] else None
    indents = ["  " * (0 if depth is None else depth(row)) for row in table.rows]
    cells = [""] * len(indents)
    for indent in set(indents):
        places = [place for place, other in enumerate(indents) if other == indent]
        rows, left = [table.rows[place] for place in places], max(room - len(indent), 1)
        whole = [column.cell(row) for row in rows]
        cut = [column.cell(row, left).rstrip() for row in rows]
        if len(set(cut)) < len(set(whole)):
            apart = told_apart(dict(zip(whole, cut, strict=True)), left)
            cut = [apart[text] for text in whole]
        for place, text in zip(places, cut, strict=True):
            cells[place] = indent + text
    return cells


def _fitting(columns: Sequence[Column[Row]], natural: Sequence[int], width: int) -> list[int]:
    """The places of the columns to show: details only where names keep a comfortable width."""

    def need(least: Callable[[Column[Row]], int]) -> list[int]:
        return [
            min(cells, least(column)) if column.flexible else cells
            for column, cells in zip(columns, natural, strict=True)
        ]

    comfortable = need(lambda column: _COMFORTABLE)
    least = need(lambda column: min(column.least, width // 4))
    return kept_with_details(columns, least, comfortable, width, _GAP)


def _bars(table: Table[Row]) -> list[Column[Row]]:
    """A bar of each share that has one, dropped before anything else."""
    return [
        kinds.TEXT(f"{column.key} bar", "", text=partial(table.bar, column), priority=99)
        for column in table.shown()
        if column.bar
    ]
