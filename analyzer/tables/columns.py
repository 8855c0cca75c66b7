"""Declares tables: their columns and rows, for the terminal, Markdown, CSV, HTML and the app.

A column is declared once, by its kind: its key in JSON and CSV, and its title. docs/columns.md has
its help. What an output adds (colours, bars, sorting) it derives from the declaration.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from decodescope.analyzer.names.fitted_names import cut_middle

Row = TypeVar("Row")
Tone = Literal["plain", "strong", "dim", "faint", "key", "accent", "good", "warn", "bad"]
# Columns from this priority on are details: a terminal shows them where names have room enough.
DETAIL = 10


@cache
def path_reader(path: str) -> Callable[[Any], Any]:
    """The reader of a path of attributes; None if one of them is None."""
    first, *others = path.split(".")
    of_first = attrgetter(first)
    if not others:
        return of_first

    def read(row: Any) -> Any:
        value = of_first(row)
        for part in others:
            if value is None:
                return None
            value = getattr(value, part)
        return value

    return read


def quotient(part: str, whole: str) -> Callable[[Any], float | None]:
    """The reader of `part` ÷ `whole`, two paths; None if one is unknown, or the whole is 0."""
    read_part, read_whole = path_reader(part), path_reader(whole)

    def read(row: Any) -> float | None:
        figure, of = read_part(row), read_whole(row)
        return None if figure is None or not of else figure / of

    return read


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column.

    `write` writes one figure, None as unknown. `key` is the figure's key in JSON and CSV, `value`
    the path of the figure in a row ("roofline.bytes_per_s"; None if a part of the path is None) or
    its reader; without it, the key is the path. `text` writes a cell that shows more than the
    figure. `cut` cuts a text to so many cells of a terminal, `fit` writes a cell of at most so
    many, where that is not the cut text. `sort` is what rows are sorted by, where that is not the
    figure, `first` the order at the first sort: the largest number, or the first text, is on top.

    `symbol` stands in the heading, for all figures of the column. Numbers are aligned on the right.
    A `flexible` column takes the room that the others leave; `least` are the fewest cells that it
    may have in a terminal. `code`: names from code, which may break between their parts. `wrap`: a
    text continues on the next line, where an output has one.

    `priority` 0 is never dropped, the highest is dropped first where room is short. A column with
    `shown` False is on no screen for this table, `csv_only` on none at all; nor is one in which no
    row has a figure, unless `always`. `bar` is how many cells a bar of a share has, 0 for none.
    """

    write: Callable[[Any], str]
    key: str
    title: str
    value: Callable[[Row], Any] | str | None = None
    text: Callable[[Row], str] | None = None
    cut: Callable[[str, int], str] = cut_middle
    fit: Callable[[Row, int], str] | None = None
    sort: Callable[[Row], Any] | None = None
    first: Literal["up", "down"] = "down"
    symbol: str = ""
    number: bool = True
    flexible: bool = False
    least: int = 1
    code: bool = False
    wrap: bool = False
    priority: int = 0
    shown: bool = True
    csv_only: bool = False
    tone: Tone | Callable[[Row], Tone] = "plain"
    bar: int = 0
    always: bool = False

    @property
    def heading(self) -> str:
        """The title, with the unit's symbol."""
        return f"{self.title} {self.symbol}".strip()

    @property
    def align(self) -> Literal["left", "right"]:
        return "right" if self.number else "left"

    def figure(self, row: Row) -> Any:
        """The figure of a row, None if it is unknown."""
        return self.reader()(row)

    def reader(self) -> Callable[[Row], Any]:
        """The reader of the figure of a row, for many rows."""
        value = self.value or self.key
        return path_reader(value) if isinstance(value, str) else value

    def sorted_by(self, row: Row) -> Any:
        """The value that the row is sorted by, None if it is unknown."""
        return self.figure(row) if self.sort is None else self.sort(row)

    def cell(self, row: Row, cells: int | None = None) -> str:
        """The text of a row; that of a flexible column in at most `cells` cells."""
        return self.writer()(row, cells)

    def writer(self) -> Callable[[Row, int | None], str]:
        """The writer of the text of a row, for many rows."""
        whole, cut, fit = self.text, self.cut, self.fit
        if whole is None:
            read, text_of = self.reader(), self.write

            def whole(row: Row) -> str:
                return text_of(read(row))

        def write(row: Row, cells: int | None) -> str:
            if cells is None:
                return whole(row)
            return cut(whole(row), cells) if fit is None else fit(row, cells)

        return write if self.flexible else lambda row, cells: whole(row)

    def tone_of(self, row: Row) -> Tone:
        return self.tone(row) if callable(self.tone) else self.tone


def columns_of(part: str, *columns: Column[Row]) -> tuple[Column[Row], ...]:
    """Columns whose figures are those of a part of each row, under their keys."""
    return tuple(
        replace(column, value=f"{part}.{column.key}") if column.value is None else column
        for column in columns
    )


def per_step(steps: int | None, *columns: Column[Row]) -> tuple[Column[Row], ...]:
    """Columns of totals; with `steps`, of their means over so many steps."""

    def mean(read: Callable[[Row], Any]) -> Callable[[Row], float]:
        return lambda row: read(row) / (steps or 1)

    if steps is None:
        return columns
    return tuple(replace(column, value=mean(column.reader())) for column in columns)


class Mark(NamedTuple):
    """A colour and a letter beside the first column: of a family of ops, of a class of gaps, or of
    a part of a step."""

    kind: Literal["family", "gap", "part"]
    name: str


@dataclass(frozen=True, slots=True)
class Table(Generic[Row]):
    """A table: its columns and rows.

    `noun` is what rows are, in the plural. Where `rows` are only the first ones, `total` is how
    many there are. `key` is what stays the same if the rows are replaced by later ones, `search`
    the text that a filter looks in (the cells, without it), `tone` that of a whole row, `depth` how
    deep a row is in a tree. A bar of a row that `is_total` of the others would say nothing: it has
    none.
    """

    noun: str
    columns: tuple[Column[Row], ...]
    rows: Sequence[Row]
    total: int | None = None
    key: Callable[[Row], Hashable] = attrgetter("name")
    search: Callable[[Row], str] | None = None
    mark: Callable[[Row], Mark] | None = None
    tone: Callable[[Row], Tone] | None = None
    depth: Callable[[Row], int] | None = None
    is_total: Callable[[Row], bool] = lambda row: False

    def bar(self, column: Column[Row], row: Row) -> str:
        """A bar as long as the share of a row."""
        share = 0.0 if self.is_total(row) else column.figure(row) or 0.0
        return "█" * round(min(max(share, 0.0), 1.0) * column.bar)

    @property
    def more(self) -> int:
        return 0 if self.total is None else max(self.total - len(self.rows), 0)

    def figures(self) -> dict[str, list[Any]]:
        """The figures of every column, whether shown or not, by its key with "_" for a dot."""
        return {
            column.key.replace(".", "_"): list(map(column.reader(), self.rows))
            for column in self.columns
        }

    def shown(self) -> tuple[Column[Row], ...]:
        """The columns for a screen: those of which any row has a figure."""
        return tuple(
            column
            for column in self.columns
            if column.shown
            and not column.csv_only
            and (column.always or any(column.figure(row) is not None for row in self.rows))
        )

    def only(self, *keys: str, least: int | None = None) -> "Table[Row]":
        """The table with these of its columns; flexible ones have `least` cells, where that is
        given."""
        columns = tuple(
            replace(column, least=least) if column.flexible and least is not None else column
            for column in self.columns
            if column.key in keys
        )
        return replace(self, columns=columns)


def kept_columns(
    columns: Sequence[Column[Any]], need: Sequence[int], room: int, gap: int
) -> list[int]:
    """The places of the columns that fit in `room`: where they need more, with `gap` cells between
    them, the column with the highest priority is dropped first."""
    kept = list(range(len(columns)))
    while sum(need[place] + gap for place in kept) - gap > room:
        dropped = max(kept, key=lambda place: columns[place].priority)
        if not columns[dropped].priority:
            break
        kept.remove(dropped)
    return kept


def kept_with_details(
    columns: Sequence[Column[Any]],
    need: Sequence[int],
    comfortable: Sequence[int],
    room: int,
    gap: int,
) -> list[int]:
    """`kept_columns`; details only where they also fit beside names of `comfortable` width."""
    detailed = kept_columns(columns, comfortable, room, gap)
    kept = kept_columns(columns, need, room, gap)
    return [place for place in kept if columns[place].priority < DETAIL or place in detailed]
