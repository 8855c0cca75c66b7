"""A trace that was opened from Python: its figures, and its tables as records and frames."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, overload

from markupsafe import escape

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.html.page import table_html
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.report_tables import REPORT_TABLES
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import answer_lines

_MOST_ROWS = 60


class Records(Sequence[dict[str, Any]]):
    """The rows of a table: each a dictionary of its figures, by the keys of docs/columns.md with
    "_" for a dot. Times are integer nanoseconds; None is unknown."""

    def __init__(self, table: Table[Any]) -> None:
        self._table = table
        self.columns = table.figures()

    def __len__(self) -> int:
        return len(self._table.rows)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return {key: figures[place] for key, figures in self.columns.items()}

    def to_pandas(self) -> Any:
        """A pandas DataFrame; whole numbers of which some are unknown have dtype Int64.

        Raises:
            MissingRequirement: pandas is not installed.
        """
        pandas = _installed("pandas")
        columns = {
            key: pandas.array(figures, dtype="Int64") if _has_gaps(figures) else figures
            for key, figures in self.columns.items()
        }
        return pandas.DataFrame(columns)

    def to_polars(self) -> Any:
        """A polars DataFrame.

        Raises:
            MissingRequirement: polars is not installed.
        """
        return _installed("polars").DataFrame(self.columns)

    def __repr__(self) -> str:
        return f"<{len(self)} {self._table.noun}: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        rows = self._table.rows
        shown = replace(self._table, rows=rows[:_MOST_ROWS], total=len(rows), mark=None)
        return table_html(shown, shown.noun)


def _has_gaps(figures: Sequence[Any]) -> bool:
    """Whether these are whole numbers of which some are unknown: pandas would round them."""
    return {type(figure) for figure in figures} == {int, type(None)}


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingRequirement(
            f"{package} is not installed; pip install {package}, or use the records as they are"
        ) from error


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OpenedTrace:
    """A trace with its figures, and what they were computed from."""

    analysis: Analysis

    @property
    def report(self) -> Report:
        """All figures: what `decodescope analyze --json` prints."""
        return self.analysis.report

    @property
    def answer(self) -> Answer:
        """The step of the trace: its time, its limit, its parts, its bound."""
        return self.report.answer

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables."""
        return tuple(REPORT_TABLES)

    def table(self, name: str) -> Records:
        """The rows of a table.

        Raises:
            InputError: there is no table of that name.
        """
        if name not in REPORT_TABLES:
            near = get_close_matches(name, REPORT_TABLES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(REPORT_TABLES)}"
            raise InputError(f"no table {name}: {hint}")
        return Records(REPORT_TABLES[name](self.report))

    def __repr__(self) -> str:
        return f"<{self._name}: {plain_line(answer_lines(self.report).headline)}>"

    def _repr_html_(self) -> str:
        lines = answer_lines(self.report)
        after = (*lines.refused, *lines.reasons, lines.host, *(f"→ {line}" for line in lines.next))
        paragraphs = "".join(f"<p>{escape(plain_line(line))}</p>" for line in after if line)
        title = f"{escape(self._name)}<br>{escape(plain_line(lines.headline))}"
        return f"<p><b>{title}</b></p>{self.table('parts')._repr_html_()}{paragraphs}"

    @property
    def _name(self) -> str:
        return plain_line(Path(self.report.source.path).name)
