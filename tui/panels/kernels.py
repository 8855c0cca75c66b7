"""The table of kernels, and of the launches of the one that was opened."""

import math
from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.names.fitted_names import short_kernel
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.tables.launches_table import LaunchRow, launch_columns
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import KernelPick, OpPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Cell, ColumnRows, Rows, TableRows, drawing_of, ranked
from decodescope.tui.style.palette import Inks

if TYPE_CHECKING:
    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.reports.kernel_launches import KernelLaunches


class LaunchRows(ColumnRows):
    """The launches of one kernel, in order of start; a row's key is its op's row in the trace."""

    def __init__(self, analysis: "Analysis", launches: "KernelLaunches") -> None:
        trace, paths = analysis.trace, analysis.ranges.paths
        ops = trace.ops.take(launches.op)
        self._analysis = analysis
        self._op = launches.op
        node = analysis.ranges.op_node[launches.op]
        # -1 is unknown; a grid is the place of its shape, a range that of its path.
        self._launches: dict[str, NDArray[np.integer]] = {
            "at_ns": launches.at_ns,
            "step": analysis.steps.op_step[launches.op],
            "length_ns": launches.length_ns,
            "attributed_ns": launches.attributed_ns,
            "gap_ns": launches.gap_ns,
            "queue_ns": launches.queue_ns,
            "latency_ns": launches.latency_ns,
            "device": ops.device,
            "stream": ops.stream,
            "grid": ops.shape,
            "range": node,
        }
        grids = [shape.grid for shape in trace.shapes]
        blocks = [-1 if grid is None else math.prod(grid) for grid in grids]
        ranks = {"grid": ranked(ops.shape, blocks), "range": ranked(node, paths)}
        texts = (
            (self._launches["step"], "step {}".format),
            (ops.stream, "stream {}".format),
            (ops.shape, [*map(extent_text, grids), UNKNOWN].__getitem__),
            (node, [*paths, UNKNOWN].__getitem__),
        )
        several, overlapping = len(analysis.busy) > 1, analysis.overlapping
        columns = launch_columns(several_devices=several, overlapping=overlapping)
        super().__init__(columns, self._launches | ranks, texts)
        self._around = _around([paths[place] for place in set(node.tolist()) - {-1}])
        self._drawings = [drawing_of(column) for column in self.columns]

    def key(self, row: int) -> Hashable:
        return int(self._op[row])

    def place(self, key: Hashable) -> int | None:
        if not isinstance(key, int):
            return None
        row = int(self._op.searchsorted(key))
        return row if row < len(self._op) and self._op[row] == key else None

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        launch = self._launch(row)
        return [draw(launch, inks, room) for draw in self._drawings]

    def _launch(self, row: int) -> LaunchRow:
        figures: dict[str, Any] = {key: int(column[row]) for key, column in self._launches.items()}
        for key in ("step", "gap_ns", "queue_ns", "latency_ns"):
            figures[key] = None if figures[key] < 0 else figures[key]
        trace, shape, node = self._analysis.trace, figures["grid"], figures["range"]
        figures["device"] = trace.device_label(figures["device"])
        figures["grid"] = trace.shapes[shape].grid if shape >= 0 else None
        figures["range"] = self._analysis.ranges.paths[node] if node >= 0 else None
        return LaunchRow(**figures, around=self._around)


def _around(paths: Sequence[str]) -> str:
    """The path of the range around all these ranges, with a "/" at its end; "" if there is none."""
    outer = (path.split("/")[:-1] for path in paths)
    common = takewhile(lambda parts: len(set(parts)) == 1, zip(*outer, strict=False))
    return "".join(f"{parts[0]}/" for parts in common)


_TITLE_CELLS = 48


class KernelTablePanel(TablePanel):
    """Every kernel of the window, or of the range that it is narrowed to. Enter shows the launches
    of a kernel, enter on a launch shows it on the timeline, escape goes back to the kernels."""

    NAME = "kernels"
    COMMANDS = commands_of("rows", "open", "kernels")

    _open: str | None = None
    _window: Window | None = None
    _within: str | None = None
    _kept: tuple[str, str, int | None, bool] | None = None

    def source(self, view: View, moment: Moment) -> object:
        return view.window, view.selection.within, self._open, view.waiting

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        from decodescope.analyzer.reports.kernel_launches import kernels_within

        window, self._within = view.window, view.selection.within
        self._window = window
        inside = "" if self._within is None else f" in {self._within}"
        noun = "operators" if view.on_cpu else "kernels"
        self._title, self._note = f"{noun.capitalize()}{inside}", "esc back"
        if self._open is not None:
            self._title = f"Launches of {short_kernel(self._open, _TITLE_CELLS)}{inside}"
        if window is None:
            return Empty(self._title, view.waiting)
        if self._open is not None:
            launches = self._launches(window, self._open)
            if len(launches):
                return launches
            self._open = None
        report, kernels = window.report, window.report.kernels
        if self._within is not None:
            kernels = kernels_within(window.analysis, self._within)
        by = " by attributed time" if report.overlapping else ""
        self._title = f"{noun.capitalize()} per {window.per}{by}{inside}"
        self._note = window.steps_words
        if not kernels:
            where = "window" if self._within is None else "range"
            return Empty(self._title, f"no {noun} in this {where}")
        table = kernels_table(
            kernels,
            attributed=report.overlapping,
            on_cpu=view.on_cpu,
            steps=report.main_steps.steps,
        )
        return TableRows(table, self._brush.glyphs)

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
        if self.forget_typed():
            return
        name, self._open = self._open, None
        self.post_message(Choose(KernelPick(name or "")))

    def _launches(self, window: Window, name: str) -> LaunchRows:
        from decodescope.analyzer.reports.kernel_launches import kernel_launches

        launches = kernel_launches(window.analysis, name, self._within)
        if window.step is not None:
            launches = launches.take(window.analysis.main_ops[launches.op])
        return LaunchRows(window.analysis, launches)

    def _replace(self, rows: Rows | Empty) -> None:
        super()._replace(rows)
        if self._kept is not None and isinstance(rows, TableRows):
            self._filter, self._search, self._sorted, self._down = self._kept
            self._kept = None
            self._arrange()
