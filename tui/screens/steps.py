"""The dialog that holds the table of steps."""

import asyncio
from dataclasses import replace

from textual.app import ComposeResult

from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.sheet import Brush
from decodescope.tui.panels.steps import StepTablePanel
from decodescope.tui.screens.dialogs import Dialog

# Limits are computed for so many steps at a time: closing the dialog waits for no more.
_STEPS_AT_ONCE = 32
# The frame, the titles of columns, and a filter.
_FRAME_ROWS = 4


class StepsScreen(Dialog[None]):
    """Closes when a step is chosen, which the app answers."""

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        super().__init__()
        assert view.window is not None
        self._shown, self._window = (view, moment), view.window.whole
        self._panel = StepTablePanel(replace(brush, frame="box"), view, moment)

    def compose(self) -> ComposeResult:
        yield self._panel

    def on_mount(self) -> None:
        self._panel.styles.height = len(self._window.report.steps) + 1 + _FRAME_ROWS
        self._panel.focus()
        self.run_worker(self._find_limits(), name="limits")

    def on_choose_step(self) -> None:
        self.close()

    async def _find_limits(self) -> None:
        from decodescope.analyzer.reports.analysis import step_limits_ns

        window = self._window
        launched = [step.index for step in window.report.steps if step.gpu_ops]
        for first in range(0, len(launched), _STEPS_AT_ONCE):
            some = launched[first : first + _STEPS_AT_ONCE]
            found = await asyncio.to_thread(step_limits_ns, window.analysis, some)
            self._panel.limits_ns = {**self._panel.limits_ns, **found}
            self._panel.show(*self._shown)
