"""The sides of a comparison: speed with its interval, what a step is made of, and accuracy."""

from collections.abc import Hashable

from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.tables.sides import sides_of
from decodescope.analyzer.tables.sides_table import sides_table
from decodescope.tui.model.view import Kind, Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows

_TITLE = "Speed beside accuracy"
_HINTS: dict[Kind, str] = {
    "live": "c measures the chosen variants in turn; d compares with a file",
    "replay": "nothing is compared yet",
    "trace": "c compares two chosen files; d compares with another file",
}


class ComparisonSidesPanel(ComparisonTable):
    """One row a variant, or a trace of a diff; the cursor's row is shown in detail below."""

    NAME = "ab_sides"

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.busy

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        result = view.comparison.result
        if result is None:
            hint = "no round is complete" if view.comparison.busy else _HINTS[view.kind]
            return Empty(_TITLE, hint)
        self._measured = isinstance(result, Comparison)
        self._unfinished = view.comparison.busy
        return TableRows(sides_table(sides_of(result)))

    def title(self) -> str:
        return _TITLE if self._measured else "A and B"

    def note(self) -> str:
        return "of the complete rounds so far" if self._unfinished else ""

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 1

    def moved(self, key: Hashable) -> None:
        self.post_message(AskComparison("side", str(key)))
