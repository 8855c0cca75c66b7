"""The tables of ranks or GPUs: who waits for whom, in which collectives, and the skew of steps."""

from collections.abc import Hashable
from typing import Any, ClassVar

from decodescope.analyzer.schema.communication_report import SkewReport
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.communication_table import collectives_table
from decodescope.analyzer.tables.waiting_table import skew_table, waiting_table
from decodescope.analyzer.text.formatting import count, duration
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import SpanPick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.comparing.tables import ComparisonTable
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows


class _WaitingTable(ComparisonTable):
    """A table of who communicates, or why there is nothing to show (`EMPTY`)."""

    EMPTY: ClassVar[str]

    def table(self, window: Window) -> Table[Any] | None:
        """The table of a window; None if nobody communicates."""
        raise NotImplementedError

    def source(self, view: View, moment: Moment) -> object:
        return view.window

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        table = None if view.window is None else self.table(view.window)
        return Empty(self._title, self.EMPTY) if table is None else TableRows(table)


class WaitingGpusPanel(_WaitingTable):
    """One row for each GPU that communicates, where one trace has several."""

    NAME = "gpus"
    EMPTY = "no GPUs that communicate"
    _title = "GPUs: who waits for whom"

    def table(self, window: Window) -> Table[Any] | None:
        communication = window.report.communication
        return None if communication is None else waiting_table(communication)


class CollectivesPanel(_WaitingTable):
    """One row for each operation of each group, the one with most time first."""

    NAME = "collectives"
    EMPTY = "no collectives"
    _title = "Collectives"

    def table(self, window: Window) -> Table[Any] | None:
        communication = window.communication
        if communication is None or not communication.collectives:
            return None
        return collectives_table(communication)


class SkewPanel(_WaitingTable):
    """The steps with the widest starts, the widest first. Enter shows one in the timeline."""

    NAME = "skew"
    EMPTY = "no steps that all recorded"
    _title = "Skew of the steps"
    COMMANDS = commands_of("skew", "comparison", "rows")
    _window: Window | None = None

    def table(self, window: Window) -> Table[Any] | None:
        self._window, communication = window, window.communication
        if communication is None or communication.skew is None:
            return None
        self._note = _skew_note(communication.skew, communication.member)
        return skew_table(communication.skew, communication.member)

    def opened(self, key: Hashable) -> None:
        window = self._window
        if window is None or window.communication is None or window.communication.skew is None:
            return
        step = next(step for step in window.communication.skew.worst if step.index == key)
        if step.at_ns is not None and step.length_ns is not None:
            start_ns = int(window.analysis.trace.ops.start_ns[0]) + step.at_ns
            self.post_message(Choose(SpanPick(start_ns, start_ns + step.length_ns)))
            self.post_message(Turn("timeline"))


def _skew_note(skew: SkewReport, member: str) -> str:
    """The median over all steps, and which one starts most of them last."""
    parts = [f"{count(skew.steps)} steps"]
    if skew.start_spread_ns is not None:
        parts.append(f"starts p50 {duration(skew.start_spread_ns.p50)}")
    if skew.last_to_start:
        rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
        parts.append(f"{member} {rank} starts {count(steps)} last")
    return " · ".join(parts)
