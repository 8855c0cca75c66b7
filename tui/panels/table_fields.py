"""Tables of few records, given as their fields: each a column with its figure and its cell."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column: the figure of a record that it is sorted by, and the cell that shows it."""

    column: Column
    value: Callable[[T], object]
    cell: Callable[[T, Inks], Cell]


def plain(text: Callable[[T], str]) -> Callable[[T, Inks], Cell]:
    """Cells with this text."""
    return lambda record, inks: Cell(text(record))


def dim(text: Callable[[T], str]) -> Callable[[T, Inks], Cell]:
    """Pale cells with this text."""
    return lambda record, inks: Cell(text(record), inks.dim)


def table_of(
    fields: Sequence[Field[T]],
    records: Sequence[T],
    key: Callable[[T], Hashable],
    text: Callable[[T], str],
) -> Records:
    """The records with those of the fields of which any record has a figure."""
    shown = [one for one in fields if any(one.value(record) is not None for record in records)]
    return Records(
        tuple(one.column for one in shown),
        records,
        key,
        lambda record, inks, room: tuple(one.cell(record, inks) for one in shown),
        lambda record: tuple(one.value(record) for one in shown),
        text,
    )
