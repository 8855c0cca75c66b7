"""Readers of figures: by their paths in a row, and as quotients."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

AnyColumn = TypeVar("AnyColumn", bound=Any)


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


def columns_of(part: str, *columns: AnyColumn) -> tuple[AnyColumn, ...]:
    """Columns whose figures are those of a part of each row, under their keys."""
    return tuple(
        replace(column, value=f"{part}.{column.key}") if column.value is None else column
        for column in columns
    )
