"""The table of steps, from which one is chosen for every page."""

import asyncio
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace

from textual.app import ComposeResult

from decodescope.analyzer.reports.analysis import step_limits_ns
from decodescope.analyzer.schema.step_report import StepReport
from decodescope.analyzer.tables.steps_table import MEDIAN, NO_LIMITS, steps_table
from decodescope.tui.model.view import View
from decodescope.tui.panels.messages import ChooseStep
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows
from decodescope.tui.screens.dialogs import Dialog

# Limits are computed for so many steps at a time: closing the dialog waits for no more.
_STEPS_AT_ONCE = 32
# The frame, the titles of columns, the median step, and a filter.
_OTHER_ROWS = 5


class StepRows(TableRows[StepReport]):
    """The first row, of the median step, stays however the others are sorted and filtered."""

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        return [0, *filter(None, super().order(column, down))]

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        return super().matching(pattern) | {0}


class StepTablePanel(TablePanel):
    """Every step of the window; `limits_ns` are those that were computed so far."""

    NAME = "steps"
    _title = "Steps"
    _note = "enter chooses · f filter · s sort · esc"

    limits_ns = NO_LIMITS

    def source(self, view: View) -> object:
        return view.window, len(self.limits_ns)

    def rows(self, view: View) -> Rows | Empty:
        if view.window is None:
            return Empty(self._title, view.waiting)
        if self._cursor_key is None:
            self._cursor_key = MEDIAN if view.window.step is None else view.window.step
        report = view.window.whole.report
        return StepRows(steps_table(report, limits_ns=self.limits_ns, with_median=True))

    def opened(self, key: Hashable) -> None:
        self.post_message(ChooseStep(None if key == MEDIAN else int(str(key))))


class StepsScreen(Dialog[None]):
    """Closes when a step is chosen, which the app answers."""

    def __init__(self, brush: Brush, view: View) -> None:
        super().__init__()
        assert view.window is not None
        self._shown, self._window = view, view.window.whole
        self._panel = StepTablePanel(replace(brush, frame="box"), view)

    def compose(self) -> ComposeResult:
        yield self._panel

    def on_mount(self) -> None:
        self._panel.styles.height = len(self._window.report.steps) + _OTHER_ROWS
        self._panel.focus()
        self.run_worker(self._find_limits(), name="limits")

    def on_choose_step(self) -> None:
        self.close()

    async def _find_limits(self) -> None:
        launched = self._window.tracks.step.tolist()
        for first in range(0, len(launched), _STEPS_AT_ONCE):
            some = launched[first : first + _STEPS_AT_ONCE]
            found = await asyncio.to_thread(step_limits_ns, self._window.analysis, some)
            self._panel.limits_ns = {**self._panel.limits_ns, **found}
            self._panel.show(self._shown)
