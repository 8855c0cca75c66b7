"""The contents of a table: columns, and rows that are formatted only when they are visible."""

import re
import warnings
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.style import Style

from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import DETAIL, Column, Mark, Table, Tone
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS, GAP_LETTERS, PART_LETTERS
from decodescope.tui.panels.sheet import Brush, TextLine
from decodescope.tui.style.palette import Inks, horizontal_bar

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Cell:
    """Text and its style; None is the table's plain text."""

    text: str
    style: Style | None = None


Drawing: TypeAlias = Callable[[Record, Brush, int], Cell]
Figures: TypeAlias = Mapping[str, NDArray[np.integer]]
Texts: TypeAlias = Sequence[tuple[NDArray[np.integer], Callable[[int], str]]]


class Rows:
    """The rows of one table, numbered from 0 in their natural order.

    Subclasses give `columns`, the number of rows and, for one row, its key, cells and text. Rows of
    the same data are the same object: identity decides whether a table is drawn again.
    """

    columns: tuple[Column[Any], ...]

    def __len__(self) -> int:
        raise NotImplementedError

    def key(self, row: int) -> Hashable:
        """The part that later rows have too: the cursor follows it."""
        raise NotImplementedError

    def cells(self, row: int, brush: Brush, room: int) -> Sequence[Cell]:
        """One cell a column; `room` is the width of the flexible column."""
        raise NotImplementedError

    def text(self, row: int) -> str:
        """The text that filter and search look in."""
        raise NotImplementedError

    def place(self, key: Hashable) -> int | None:
        """The row with this key, None if there is none."""
        raise NotImplementedError

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        """The rows sorted by a column, None in their natural order; equal rows keep theirs. Many
        rows are an array: garbage collections visit every number of a list."""
        raise NotImplementedError

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        """The rows whose text matches."""
        raise NotImplementedError

    def column_help(self) -> list[tuple[str, str]]:
        # Only `?` needs it.
        from decodescope.analyzer.tables.column_help import help_of

        return list(help_of(self.columns).items())


class ColumnRows(Rows):
    """Rows whose figures are NumPy columns: sorting and filtering work on whole columns.

    `figures` are what rows are sorted by, by the key of their column, negative for unknown. `texts`
    are what filter and search look in: a number for each row, and the text of a number.
    """

    def __init__(self, columns: Iterable[Column[Any]], figures: Figures, texts: Texts) -> None:
        self.columns = tuple(column for column in columns if column.shown)
        self._figures, self._texts = figures, texts
        self._orders: dict[tuple[int, bool], Sequence[int]] = {}

    def __len__(self) -> int:
        return len(self._texts[0][0])

    def text(self, row: int) -> str:
        return "\n".join(text(int(numbers[row])) for numbers, text in self._texts)

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        if column is None or self.columns[column].key not in self._figures:
            return range(len(self))
        if (column, down) not in self._orders:
            values = self._figures[self.columns[column].key].astype(np.int64)
            order = np.lexsort((np.where(values < 0, 0, -values if down else values), values < 0))
            self._orders[column, down] = array("q", order.tobytes())
        return self._orders[column, down]

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        matches = np.zeros(len(self), dtype=np.bool_)
        for (_, text), (numbers, place) in zip(self._texts, self._distinct, strict=True):
            matching = [pattern.search(text(number)) is not None for number in numbers]
            matches |= np.array(matching, dtype=np.bool_)[place]
        return set(np.flatnonzero(matches).tolist())

    @cached_property
    def _distinct(self) -> list[tuple[list[int], Int64s]]:
        """For each of the texts its distinct numbers, and the place of each row's among them."""
        distinct = [np.unique(numbers, return_inverse=True) for numbers, _ in self._texts]
        return [(numbers.tolist(), place) for numbers, place in distinct]


def ranked(index: NDArray[np.integer], entries: Sequence[Any]) -> Int64s:
    """For each row the place of `entries[index]` among the sorted distinct entries; -1 for -1."""
    places = {entry: place for place, entry in enumerate(sorted(set(entries)))}
    ranks = np.array([*(places[entry] for entry in entries), -1], dtype=np.int64)
    return np.asarray(ranks[index])


class TableRows(Rows, Generic[Record]):
    """The rows of a declared table, with a swatch of each row's mark, and a bar beside each share,
    which the largest of its column fills."""

    def __init__(self, table: Table[Record]) -> None:
        self.table = table
        drawn: list[tuple[Column[Record], Drawing[Record]]] = []
        if table.mark is not None:
            drawn.append(_swatches(table.mark))
        self._named = len(drawn)
        for column in table.shown():
            drawn.append((column, drawing_of(column, table.tone)))
            if column.bar:
                most = max((column.figure(record) or 0.0 for record in table.rows), default=0.0)
                drawn.append(_bars(column, most, table.mark))
        self.columns = tuple(column for column, _ in drawn)
        self._drawings = tuple(drawing for _, drawing in drawn)

    def __len__(self) -> int:
        return len(self.table.rows)

    def key(self, row: int) -> Hashable:
        return self.table.key(self.table.rows[row])

    def place(self, key: Hashable) -> int | None:
        return self._places.get(key)

    def text(self, row: int) -> str:
        record = self.table.rows[row]
        if self.table.search is not None:
            return self.table.search(record)
        return " ".join(column.cell(record) for column in self.table.columns if column.shown)

    def cells(self, row: int, brush: Brush, room: int) -> list[Cell]:
        record = self.table.rows[row]
        return [drawing(record, brush, room) for drawing in self._drawings]

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        rows = range(len(self))
        if column is None:
            return rows
        values = [self.columns[column].sorted_by(record) for record in self.table.rows]
        known = [row for row in rows if values[row] is not None]
        known.sort(key=lambda row: values[row], reverse=down)
        return known + [row for row in rows if values[row] is None]

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        return {row for row in range(len(self)) if pattern.search(self.text(row))}

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {self.key(row): row for row in range(len(self))}


def drawing_of(
    column: Column[Record], of_row: Callable[[Record], Tone] | None = None
) -> Drawing[Record]:
    """Draws the cells of a column, in their own tone or else in that of the row."""

    write, own = column.writer(), column.tone
    if not callable(own) and (own != "plain" or of_row is None):
        return lambda record, brush, room: Cell(write(record, room), tone_style(own, brush.inks))

    def draw(record: Record, brush: Brush, room: int) -> Cell:
        tone = own(record) if callable(own) else own
        if tone == "plain" and of_row is not None:
            tone = of_row(record)
        return Cell(write(record, room), tone_style(tone, brush.inks))

    return draw


def _swatches(mark: Callable[[Record], Mark]) -> tuple[Column[Record], Drawing[Record]]:
    column: Column[Record] = kinds.TEXT("mark", "", lambda record: mark(record).name)
    return column, lambda record, brush, room: swatch(mark(record), brush)


def _bars(
    column: Column[Record], most: float, mark: Callable[[Record], Mark] | None
) -> tuple[Column[Record], Drawing[Record]]:
    """A bar beside a share, in the colour of the row's mark; `most` fills it."""

    def draw(record: Record, brush: Brush, room: int) -> Cell:
        share = (column.figure(record) or 0.0) / most if most else 0.0
        style = None if mark is None else mark_style(mark(record), brush.inks)
        return Cell(horizontal_bar(share, column.bar, brush.glyphs), style)

    bar: Column[Record] = kinds.TEXT(
        f"{column.key}.bar", column.title, column.figure, first="down", priority=DETAIL
    )
    return bar, draw


def text_lines(rows: Rows, brush: Brush, order: Iterable[int] | None = None) -> list[TextLine]:
    """The titles and the rows as text, with whole names."""
    shown = range(len(rows)) if order is None else order
    lines = (tuple(cell.text for cell in rows.cells(row, brush, 1 << 16)) for row in shown)
    return [tuple(column.heading for column in rows.columns), *lines]


def tone_style(tone: Tone, inks: Inks) -> Style | None:
    """The style of a tone; None is the table's plain text."""
    style: Style | None = None if tone == "plain" else getattr(inks, tone)
    return style


def mark_style(mark: Mark, inks: Inks) -> Style:
    return {"family": inks.family, "gap": inks.gap, "part": inks.part}[mark.kind](mark.name)


def swatch(mark: Mark, brush: Brush) -> Cell:
    """A mark in one cell: its colour, or its letter where colours do not tell."""
    letters = {"family": FAMILY_LETTERS, "gap": GAP_LETTERS, "part": PART_LETTERS}[mark.kind]
    text = brush.inks.mark(letters.get(mark.name, "?"), brush.glyphs.swatch)
    return Cell(text, mark_style(mark, brush.inks))


def smart_pattern(text: str) -> re.Pattern[str]:
    """`text` as a regular expression, else literally; capitals make it sensitive to case."""
    flags = re.NOFLAG if any(char.isupper() for char in text) else re.IGNORECASE
    try:
        # What a later Python may read otherwise is a warning, which would land on the screen.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(text, flags)
    except re.error:
        return re.compile(re.escape(text), flags)
