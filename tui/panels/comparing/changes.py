"""The base of the tables of two sides: what changed from the first to the one that is detailed."""

from typing import Any, ClassVar

from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.sides import Side, pair_with_first, sides_of
from decodescope.tui.model.comparing import ComparisonState
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows

_NAME_CELLS = 12


class ChangesTable(ComparisonTable):
    """Subclasses say what they list (`WHAT`), and give the rows and columns."""

    WHAT: ClassVar[str]

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Table[Any]:
        """The table of both windows; `names` are those of the sides, cut for titles of columns."""
        raise NotImplementedError

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.side

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        title = self.WHAT.capitalize()
        found = _detailed(view.comparison)
        if found is None:
            return Empty(title, "nothing compared yet")
        first, side, pair = found
        if first.window is None or side.window is None:
            lacking = first.name if first.window is None else side.name
            return Empty(title, f"{lacking} has no profiled window")
        names = (first.name[:_NAME_CELLS], side.name[:_NAME_CELLS])
        rows = TableRows(self.changes(pair, (first.window, side.window), names))
        if not len(rows):
            return Empty(title, f"no {self.WHAT} to compare in these windows")
        what = rows.columns[0].heading.capitalize()
        self._title = f"{what}s: {first.name} to {side.name}"
        return rows

    def wanted_rows(self, width: int) -> int | None:
        return len(self._shown) if isinstance(self._shown, Rows) else 0

    def title(self) -> str:
        return self._title


def _detailed(state: ComparisonState) -> tuple[Side, Side, Pair] | None:
    """The first side, the one that is shown in detail beside it, and what changed; None without a
    result."""
    if state.result is None:
        return None
    first, *others = sides_of(state.result)
    names = [side.name for side in others]
    side = others[names.index(state.side) if state.side in names else -1]
    pair = pair_with_first(state.result, side.name)
    return None if pair is None else (first, side, pair)
