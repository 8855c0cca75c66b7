"""The tables of the comparison page: its sides, what changed between two of them, and of ranks or
GPUs who waits for whom, in which collectives, and the skew of steps."""

from collections.abc import Hashable, Set
from typing import Any, ClassVar

from textual.widget import Widget

from decodescope.analyzer.comparing.pair_changes import KernelChange
from decodescope.analyzer.comparing.sides import pair_with_first, sides_of
from decodescope.analyzer.schema.communication_report import SkewReport
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
from decodescope.analyzer.tables.communication_table import collectives_table
from decodescope.analyzer.tables.sides_table import sides_table
from decodescope.analyzer.tables.waiting_table import skew_table, waiting_table
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.vocabulary.words import whole_change
from decodescope.tui.commands import commands_of
from decodescope.tui.model.candidates import comparison_candidates, rank_files
from decodescope.tui.model.picks import SpanPick
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import AskComparison, Choose
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


def idle_comparison(view: View) -> set[str]:
    """The actions of `ComparisonKeys` that do nothing now: rounds are of a worker's variants."""
    idle = set() if view.comparison.measuring else {"cancel"}
    counts_rounds = view.kind == "live" and not view.comparison.busy
    return idle if counts_rounds else idle | {"rounds(1)", "rounds(-1)"}


class ComparisonTable(TablePanel, ComparisonKeys):
    """A table of the comparison page. Its rows select nothing on other pages."""

    COMMANDS = commands_of("comparison", "rows")

    def idle_actions(self) -> Set[str]:
        return super().idle_actions() | idle_comparison(self._seen)

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0


class ComparisonSidesPanel(ComparisonTable):
    """One row a variant, or a trace of a diff; the cursor's row is shown in detail below."""

    NAME = "ab_sides"
    SOURCE = ("comparison.result", "comparison.busy")

    def rows(self, view: View) -> Rows | Empty:
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
    SOURCE = ("comparison.result", "comparison.side")

    def changes(self, pair: Pair, windows: Windows, names: Names) -> Table[Any]:
        """The table of both windows; `names` are those of the sides, cut for titles of columns."""
        raise NotImplementedError

    def rows(self, view: View) -> Rows | Empty:
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
    """The parts of the median step of each side, the one that changed most first."""

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


class _WaitingTable(ComparisonTable):
    """A table of who communicates, or why there is nothing to show (`EMPTY`)."""

    EMPTY: ClassVar[str]

    def table(self, window: Window) -> Table[Any] | None:
        """The table of a window; None if nobody communicates."""
        raise NotImplementedError

    def rows(self, view: View) -> Rows | Empty:
        table = None if view.window is None else self.table(view.window)
        return Empty(self._title, self.EMPTY) if table is None else TableRows(table)


class WaitingGpusPanel(_WaitingTable):
    """One row for each GPU that communicates, where one trace has several, or for each rank, where
    the candidates are not the files of ranks."""

    NAME = "gpus"
    EMPTY = "no GPUs that communicate"
    _title = "GPUs: who waits for whom"

    def source(self, view: View) -> object:
        return super().source(view), comparison_candidates(view)

    def rows(self, view: View) -> Rows | Empty:
        ranks = None if view.window is None else view.window.ranks
        if ranks is not None and rank_files(comparison_candidates(view), ranks):
            return Empty(self._title, "the files of the ranks are listed above")
        return super().rows(view)

    def table(self, window: Window) -> Table[Any] | None:
        communication = window.communication
        if communication is None or not any(one.communication_ns for one in communication.ranks):
            return None
        whose = "GPUs" if communication.member == "GPU" else "Ranks"
        self._title = f"{whose}: who waits for whom"
        return waiting_table(communication)


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

    def table(self, window: Window) -> Table[Any] | None:
        communication = window.communication
        if communication is None or communication.skew is None:
            return None
        self._note = _skew_note(communication.skew, communication.member)
        return skew_table(communication.skew, communication.member)

    def opened(self, key: Hashable) -> None:
        window = self._seen.window
        if window is None or window.communication is None or window.communication.skew is None:
            return
        step = next(step for step in window.communication.skew.worst if step.index == key)
        if step.at_ns is not None and step.length_ns is not None:
            start_ns = int(window.analysis.trace.ops.start_ns[0]) + step.at_ns
            span = SpanPick(start_ns, start_ns + step.length_ns)
            self.post_message(Choose(span, page="timeline"))


def _skew_note(skew: SkewReport, member: str) -> str:
    parts = [f"{count(skew.steps)} steps"]
    if skew.start_spread_ns is not None:
        parts.append(f"starts p50 {duration(skew.start_spread_ns.p50)}")
    if skew.last_to_start:
        rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
        parts.append(f"{member} {rank} starts {count(steps)} last")
    return " · ".join(parts)
