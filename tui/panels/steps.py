"""The table of steps, from which one is chosen for every page."""

import re
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

from decodescope.analyzer.schema.report import StepReport
from decodescope.analyzer.tables.steps_table import MEDIAN, steps_to_choose
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.messages import ChooseStep
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows


class StepRows(TableRows[StepReport]):
    """The row of the median step stays on top, however the others are sorted and filtered."""

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        rows = super().order(column, down)
        first = self.place(MEDIAN)
        return rows if first is None else [first, *(row for row in rows if row != first)]

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        first = self.place(MEDIAN)
        return super().matching(pattern) | (set() if first is None else {first})


class StepTablePanel(TablePanel):
    """Every step of the window; `limits_ns` are those that were computed so far."""

    NAME = "steps"
    _title = "Steps"
    _note = "enter chooses · f filter · s sort · esc"

    limits_ns: Mapping[int, int] = MappingProxyType({})

    def source(self, view: View, moment: Moment) -> object:
        return view.window, len(self.limits_ns)

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        if view.window is None:
            return Empty(self._title, view.waiting)
        if self._cursor_key is None:
            self._cursor_key = MEDIAN if view.window.step is None else view.window.step
        return StepRows(steps_to_choose(view.window.whole.report, self.limits_ns))

    def moved(self, key: Hashable) -> None:
        """Only enter chooses."""

    def opened(self, key: Hashable) -> None:
        self.post_message(ChooseStep(None if key == MEDIAN else int(str(key))))
