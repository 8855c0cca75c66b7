"""What a table shows: columns, and rows that are formatted only when they are visible."""

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.style import Style

from decodescope.tui.style.palette import Inks


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `priority` 0 is never dropped, the highest is dropped first if room is short.

    `first` is the order at the first sort: "down" is largest first. A `flexible` column takes the
    cells that the others leave, at least `least`.
    """

    title: str
    align: Literal["left", "right"] = "right"
    priority: int = 0
    first: Literal["up", "down"] = "down"
    flexible: bool = False
    least: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """Text and its style; None is the table's plain text."""

    text: str
    style: Style | None = None


class Rows:
    """The rows of one table, numbered from 0 in their natural order.

    Subclasses give `columns`, the number of rows and, for one row, its key, cells and text. Rows of
    the same data are the same object: identity decides whether a table is drawn again.
    """

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        raise NotImplementedError

    def key(self, row: int) -> Hashable:
        """What stays the same if the rows are replaced by later ones: the cursor follows it."""
        raise NotImplementedError

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        """One cell a column; `room` is the width of the flexible column."""
        raise NotImplementedError

    def text(self, row: int) -> str:
        """What filter and search look in."""
        raise NotImplementedError

    def values(self, column: int) -> Sequence[object]:
        """What each row is sorted by, for a column; numbers or texts, None is last."""
        raise NotImplementedError

    def place(self, key: Hashable) -> int | None:
        """The row with this key, None if there is none."""
        return next((row for row in range(len(self)) if self.key(row) == key), None)

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        """The rows sorted by a column, None in their natural order; equal rows keep theirs. Many
        rows are an array: garbage collections visit every number of a list."""
        if column is None:
            return range(len(self))
        values = self.values(column)
        known = [row for row in range(len(values)) if values[row] is not None]
        lost = [row for row in range(len(values)) if values[row] is None]
        known.sort(key=lambda row: values[row], reverse=down)  # type: ignore[arg-type,return-value]
        return known + lost

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        """The rows whose text matches."""
        return {row for row in range(len(self)) if pattern.search(self.text(row))}


@dataclass(eq=False)
class Records(Rows):
    """Rows of few records: `key`, `cells` and `text` of a record are given as functions, `values`
    as one tuple a record."""

    columns: tuple[Column, ...]
    records: Sequence[object]
    key_of: Callable[..., Hashable]
    cells_of: Callable[..., Sequence[Cell]]
    values_of: Callable[..., Sequence[object]]
    text_of: Callable[..., str]
    _places: dict[Hashable, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def key(self, row: int) -> Hashable:
        return self.key_of(self.records[row])

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        return self.cells_of(self.records[row], inks, room)

    def text(self, row: int) -> str:
        return self.text_of(self.records[row])

    def values(self, column: int) -> Sequence[object]:
        return [self.values_of(record)[column] for record in self.records]

    def place(self, key: Hashable) -> int | None:
        if not self._places:
            self._places = {self.key(row): row for row in range(len(self))}
        return self._places.get(key)


def smart_pattern(text: str) -> re.Pattern[str]:
    """`text` as a regular expression, or literally if it is none; capitals make it sensitive to
    case."""
    flags = re.NOFLAG if any(char.isupper() for char in text) else re.IGNORECASE
    try:
        # What a later Python may read otherwise is a warning, which would land on the screen.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(text, flags)
    except re.error:
        return re.compile(re.escape(text), flags)
