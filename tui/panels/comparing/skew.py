"""How far apart ranks or GPUs are in the steps where that is most."""

from collections.abc import Hashable

from decodescope.analyzer.schema.communication_report import SkewReport
from decodescope.analyzer.tables.waiting_table import skew_table
from decodescope.analyzer.text.formatting import count, duration
from decodescope.tui.commands import Command
from decodescope.tui.model.picks import SpanPick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows

_TITLE = "Skew of the steps"


class SkewPanel(ComparisonTable):
    """The steps with the widest starts, the widest first. Enter shows one in the timeline."""

    NAME = "skew"
    COMMANDS = (
        Command("enter", "enter", "Timeline", "Show the step in the timeline", "timeline", 0,
                "enter"),
        *ComparisonTable.COMMANDS,
    )  # fmt: skip
    _window: Window | None = None
    _note = ""

    def source(self, view: View, moment: Moment) -> object:
        return view.window

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        self._window = view.window
        found = None if view.window is None else view.window.communication
        if found is None or found.skew is None:
            return Empty(_TITLE, "no steps that all recorded")
        member = found.member
        self._note = _note(found.skew, member)
        return TableRows(skew_table(found.skew, member))

    def title(self) -> str:
        return _TITLE

    def note(self) -> str:
        return self._note

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0

    def opened(self, key: Hashable) -> None:
        window = self._window
        if window is None or window.communication is None or window.communication.skew is None:
            return
        step = next(one for one in window.communication.skew.worst if one.index == key)
        if step.at_ns is not None and step.length_ns is not None:
            start_ns = int(window.analysis.trace.ops.start_ns[0]) + step.at_ns
            self.post_message(Choose(SpanPick(start_ns, start_ns + step.length_ns)))
            self.post_message(Turn("timeline"))


def _note(skew: SkewReport, member: str) -> str:
    """The median over all steps, and which one starts most of them last."""
    parts = [f"{count(skew.steps)} steps"]
    if skew.start_spread_ns is not None:
        parts.append(f"starts p50 {duration(skew.start_spread_ns.p50)}")
    if skew.last_to_start:
        rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
        parts.append(f"{member} {rank} starts {count(steps)} last")
    return " · ".join(parts)
