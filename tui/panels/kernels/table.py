"""The table of kernels, and of the launches of the one that was opened."""

from collections.abc import Hashable
from typing import ClassVar

from decodescope.analyzer.names.names import short_kernel
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.tui.commands import Command
from decodescope.tui.model.picks import KernelPick, OpPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.kernels.launches import LaunchRows
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table import TABLE_COMMANDS, TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows
from decodescope.tui.style.palette import Glyphs

_TITLE_CELLS = 48


class KernelTablePanel(TablePanel):
    """Every kernel of the window, or of the range that it is narrowed to. Enter shows the launches
    of a kernel, enter on a launch shows it on the timeline, escape goes back to the kernels."""

    NAME = "kernels"
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        *TABLE_COMMANDS,
        Command("back", "escape", "Back", "From the launches of a kernel to all kernels",
                shown="esc"),
    )  # fmt: skip

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        self._open: str | None = None
        self._window: Window | None = None
        self._within: str | None = None
        self._on_cpu = False
        self._kept: tuple[str, str, int | None, bool] | None = None
        super().__init__(brush, view, moment)

    def source(self, view: View, moment: Moment) -> object:
        return view.window, view.selection.within, self._open, view.waiting

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        self._window, self._within = view.window, view.selection.within
        self._on_cpu = view.on_cpu
        if view.window is None:
            return Empty(self.title(), view.waiting)
        if self._open is not None:
            launches = self._launches(view.window, self._open)
            if len(launches):
                return launches
            self._open = None
        kernels = _kernels(view.window, self._within)
        if not kernels:
            where = "window" if self._within is None else "range"
            return Empty(self.title(), f"no {self._noun}s in this {where}")
        report = view.window.report
        table = kernels_table(
            kernels,
            attributed=report.overlapping,
            on_cpu=self._on_cpu,
            steps=len(report.steps),
        )
        return TableRows(table, self._glyphs)

    def title(self) -> str:
        if self._open is not None:
            found = f"Launches of {short_kernel(self._open, _TITLE_CELLS)}"
        else:
            found = f"{self._noun.capitalize()}s"
            if self._window is not None:
                found += f" per {self._window.per}"
                found += " by attributed time" * self._window.report.overlapping
        return found if self._within is None else f"{found} in {self._within}"

    def note(self) -> str:
        if self._open is not None:
            return "esc back"
        if self._window is None:
            return ""
        steps = len(self._window.report.steps)
        return f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"

    def pick_of(self, key: Hashable) -> Pick | None:
        return OpPick(key) if isinstance(key, int) else KernelPick(str(key))

    def key_of(self, pick: Pick | None) -> Hashable:
        if isinstance(pick, KernelPick):
            return pick.name
        if not isinstance(pick, OpPick) or self._open is not None or self._window is None:
            return pick.row if isinstance(pick, OpPick) else None
        trace = self._window.analysis.trace
        name: str = trace.names[trace.ops.name[pick.row]]
        return name

    def opened(self, key: Hashable) -> None:
        if isinstance(key, int):
            self.post_message(Choose(OpPick(key)))
            self.post_message(Turn("timeline"))
        elif self._window is not None:
            first = self._launches(self._window, str(key)).key(0)
            self._open = str(key)
            self._kept = (self._filter, self._search, self._sorted, self._down)
            self._filter = self._search = ""
            self.post_message(Choose(self.pick_of(first)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only launches have somewhere to go back to: else the key is the app's."""
        return action != "back" or self._open is not None

    def action_back(self) -> None:
        """Drop a search and a filter; without one, show all kernels again, as they were."""
        if self.forget_typed():
            return
        name, self._open = self._open, None
        self.post_message(Choose(KernelPick(name or "")))

    @property
    def _noun(self) -> str:
        return "operator" if self._on_cpu else "kernel"

    def _glyphs(self) -> Glyphs:
        return self._brush.glyphs

    def _launches(self, window: Window, name: str) -> LaunchRows:
        from decodescope.analyzer.reports.kernel_launches import kernel_launches

        return LaunchRows(window.analysis, kernel_launches(window.analysis, name, self._within))

    def _replace(self, rows: Rows | Empty) -> None:
        super()._replace(rows)
        if self._kept is not None and isinstance(rows, TableRows):
            self._filter, self._search, self._sorted, self._down = self._kept
            self._kept = None
            self._arrange()


def _kernels(window: Window, within: str | None) -> tuple[KernelReport, ...]:
    from decodescope.analyzer.reports.kernel_launches import kernels_within

    if within is None:
        return window.report.kernels
    return kernels_within(window.analysis, within)
