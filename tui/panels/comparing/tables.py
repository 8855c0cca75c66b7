"""The tables of the comparison page: its sides, and what changed between two of them."""

from collections.abc import Hashable
from typing import Any, ClassVar

from textual.widget import Widget

from decodescope.analyzer.comparing.pair_changes import KernelChange
from decodescope.analyzer.comparing.sides import pair_with_first, sides_of
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    Pair,
    PartChange,
    RangeChange,
    StepChanges,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.changes_table import (
    kernel_changes_table,
    parts_table,
    range_changes_table,
    range_notes,
)
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.sides_table import sides_table
from decodescope.analyzer.vocabulary.words import whole_change
from decodescope.tui.commands import commands_of
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows

_SIDES_TITLE = "Speed beside accuracy"
_NAME_CELLS = 12
Windows = tuple[Report, Report]
Names = tuple[str, str]


class ComparisonKeys(Widget):
    """The requests that the keys of a comparison make of the app, on each of its panels."""

    def action_start(self) -> None:
        self.post_message(AskComparison("start"))

    def action_cancel(self) -> None:
        self.post_message(AskComparison("cancel"))

    def action_rounds(self, by: int) -> None:
        self.post_message(AskComparison("rounds", by=by))

    def action_other_file(self) -> None:
        self.post_message(AskComparison("file"))

    def action_end_worker(self) -> None:
        self.post_message(AskComparison("end_worker"))


class ComparisonTable(TablePanel, ComparisonKeys):
    """A table of the comparison page. Its rows are not of the window that other pages show, so they
    select nothing there."""

    COMMANDS = commands_of("comparison", "rows")

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0

    def moved(self, key: Hashable) -> None:
        """Select nothing."""


class ComparisonSidesPanel(ComparisonTable):
    """One row a variant, or a trace of a diff; the cursor's row is shown in detail below."""

    NAME = "ab_sides"

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.busy

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        result = view.comparison.result
        if result is None:
            return Empty(_SIDES_TITLE, "nothing compared yet")
        self._title = _SIDES_TITLE if isinstance(result, Comparison) else "A and B"
        self._note = "of the complete rounds so far" if view.comparison.busy else ""
        return TableRows(sides_table(sides_of(result)))

    def moved(self, key: Hashable) -> None:
        self.post_message(AskComparison("side", str(key)))


class _ChangesTable(ComparisonTable):
    """Changes from the first side to the one that is shown in detail; `LISTED` names them."""

    LISTED: ClassVar[str]

    def changes(self, pair: Pair, windows: Windows, names: Names) -> Table[Any]:
        """The table of both windows; `names` are those of the sides, cut for titles of columns."""
        raise NotImplementedError

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.side

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        title, result = self.LISTED.capitalize(), view.comparison.result
        if result is None:
            return Empty(title, "nothing compared yet")
        first, *others = sides_of(result)
        side = next((side for side in others if side.name == view.comparison.side), others[-1])
        pair = pair_with_first(result, side.name)
        assert pair is not None
        if first.window is None or side.window is None:
            without = first.name if first.window is None else side.name
            return Empty(title, f"{without} has no profiled window")
        names = (first.name[:_NAME_CELLS], side.name[:_NAME_CELLS])
        rows = TableRows(self.changes(pair, (first.window, side.window), names))
        if not len(rows):
            return Empty(title, f"no {self.LISTED} to compare in these windows")
        self._title = f"{rows.columns[0].heading.capitalize()}s: {first.name} to {side.name}"
        return rows

    def wanted_rows(self, width: int) -> int | None:
        return len(self._shown) if isinstance(self._shown, Rows) else 0


class ComparisonStepPanel(_ChangesTable):
    """The parts of the median step of each side; they add up to it. The part whose time changed
    most is first."""

    NAME = "ab_step"
    LISTED = "parts"

    def changes(self, pair: Pair, windows: Windows, names: Names) -> Table[PartChange]:
        step = pair.step or StepChanges(None, None, ())
        self._note = f"step {whole_change(sum(row.change_ns for row in step.parts))} µs"
        return parts_table(step, names)


class ComparisonKernelsPanel(_ChangesTable):
    """The kernel whose time changed most is first."""

    NAME = "ab_kernels"
    LISTED = "kernels"

    def changes(self, pair: Pair, windows: Windows, names: Names) -> Table[KernelChange]:
        return kernel_changes_table(*windows, names)


class ComparisonRangesPanel(_ChangesTable):
    """The innermost ranges, the one that changed most first; a fused one is one row."""

    NAME = "ab_ranges"
    LISTED = "ranges"

    def changes(self, pair: Pair, windows: Windows, names: Names) -> Table[RangeChange]:
        table = range_changes_table(pair, names)
        self._note = range_notes(table, pair.overlapping)
        return table
