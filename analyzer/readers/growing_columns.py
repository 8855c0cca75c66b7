"""Columns that grow while a file is read, and are sorted, without ever being held twice."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Bools, Columns, Int64s

Rows = TypeVar("Rows", bound=Columns)


class Growing(Generic[Rows]):
    """The rows of all parts that were appended, one array a column.

    An array grows by an eighth, in place where the system can move its pages. `rows` are views that
    must be dropped before the next change.
    """

    def __init__(self, kind: type[Rows], parts: Iterable[Rows] = ()) -> None:
        self._kind = kind
        self._count = 0
        self._columns: dict[str, NDArray[Any]] = {}
        for part in parts:
            self.append(part)

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The columns of `rows` themselves, to be sorted; nothing is appended to them."""
        growing = cls(type(rows))
        growing._columns = {field.name: getattr(rows, field.name) for field in fields(rows)}
        growing._count = len(rows)
        return growing

    def __len__(self) -> int:
        return self._count

    def append(self, part: Rows) -> None:
        begin, self._count = self._count, self._count + len(part)
        for field in fields(self._kind):
            values = getattr(part, field.name)
            column = self._columns.setdefault(field.name, np.zeros(0, dtype=values.dtype))
            if self._count > len(column):
                column.resize(max(self._count, len(column) * 9 // 8), refcheck=False)
            column[begin : self._count] = values

    def rows(self) -> Rows:
        columns = {name: column[: self._count] for name, column in self._columns.items()}
        none = np.zeros(0, dtype=np.int64)
        return self._kind(**{field.name: none for field in fields(self._kind)} | columns)

    def change(self, **columns: NDArray[Any]) -> Self:
        """Put these columns in the place of those of the same names."""
        self._columns |= columns
        return self

    def keep(self, chosen: Int64s | Bools) -> Self:
        """Keep the chosen rows, in their order, one column after another."""
        for name, column in self._columns.items():
            self._columns[name] = column[: self._count][chosen]
        self._count = len(next(iter(self._columns.values()), ()))
        return self
