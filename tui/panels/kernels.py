"""The table of kernels, and of the launches of the one that was opened."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.names.fitted_names import cut_start, path_around
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.kernel_launches import (
    KernelGroup,
    KernelLaunches,
    groupings,
    kernel_groups,
    kernel_launches,
    kernels_within,
    op_groups,
)
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables.columns import Mark, Table
from decodescope.analyzer.tables.kernels_table import (
    LaunchRow,
    family_of,
    kernels_table,
    launch_columns,
    short_names,
)
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import KernelGroupPick, KernelPick, OpPick, Pick
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import Choose
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table_rows import Cell, ColumnRows, Rows, TableRows, drawing_of, ranked
from decodescope.tui.panels.tree import Branch, TreePanel, TreeRows


class LaunchRows(ColumnRows):
    """The launches of one kernel, in order of start; a row's key is its op's row in the trace."""

    def __init__(self, analysis: Analysis, launches: KernelLaunches) -> None:
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
        self._around = path_around(paths[place] for place in set(node.tolist()) - {-1})
        self._drawings = [drawing_of(column) for column in self.columns]

    def key(self, row: int) -> Hashable:
        return int(self._op[row])

    def place(self, key: Hashable) -> int | None:
        if not isinstance(key, int):
            return None
        row = int(self._op.searchsorted(key))
        return row if row < len(self._op) and self._op[row] == key else None

    def cells(self, row: int, brush: Brush, room: int) -> Sequence[Cell]:
        launch = self._launch(row)
        return [draw(launch, brush, room) for draw in self._drawings]

    def _launch(self, row: int) -> LaunchRow:
        figures: dict[str, Any] = {key: int(column[row]) for key, column in self._launches.items()}
        for key in ("step", "gap_ns", "queue_ns", "latency_ns"):
            figures[key] = None if figures[key] < 0 else figures[key]
        trace, shape, node = self._analysis.trace, figures["grid"], figures["range"]
        figures["device"] = trace.device_label(figures["device"])
        figures["grid"] = trace.shapes[shape].grid if shape >= 0 else None
        figures["range"] = self._analysis.ranges.paths[node] if node >= 0 else None
        return LaunchRow(**figures, around=self._around)


_TITLE_CELLS = 48
_BY_NAME = "name"


class KernelTablePanel(TreePanel):
    """Every kernel of the window, or of the range that it is narrowed to, by itself or below its
    role, layer or module. Enter opens a group; of a kernel it shows the launches, of a launch the
    place on the timeline. Escape goes back to the kernels.

    A key is the name of a kernel, below a group with the number of it, the pick of a group, or the
    row of a launch."""

    NAME = "kernels"
    COMMANDS = commands_of("rows", "open", "tree", "grouped", "kernels")
    SOURCE = ("window", "waiting", "selection.within", "_open", "_by", "_turned")

    _open: str | tuple[int, str] | None = None
    _by = _BY_NAME
    _groups: tuple[Window | None, str | None, str, Sequence[KernelGroup]] = (None, None, "", ())
    _within: str | None = None
    _kept: tuple[str, str, int | None, bool] | None = None

    def rows(self, view: View) -> Rows | Empty:
        window, self._within = view.window, view.selection.within
        inside = "" if self._within is None else f" in {self._within}"
        noun = "operators" if view.on_cpu else "kernels"
        self._title, self._note = f"{noun.capitalize()}{inside}", "esc back"
        if window is None:
            return Empty(self._title, view.waiting)
        if self._open is not None:
            name = _name(self._open)
            shown = short_names(window.report.kernels, (name,)).of(name, _TITLE_CELLS)
            self._title = f"Launches of {shown}{inside}"
            launches = self._launches(window, self._open)
            if len(launches):
                return launches
            self._open = None
        report, kernels = window.report, window.report.kernels
        if self._within is not None:
            kernels = kernels_within(window.analysis, self._within)
        by = "" if self._by == _BY_NAME else f" by {self._by}"
        ranked = " by attributed time" if report.overlapping else ""
        self._title = f"{noun.capitalize()}{by} per {window.per}{ranked}{inside}"
        self._note = window.steps_words
        if not kernels:
            where = "window" if self._within is None else "range"
            return Empty(self._title, f"no {noun} in this {where}")
        if by:
            return self._tree(window, view.on_cpu)
        return TableRows(_table(window, kernels, view.on_cpu))

    def pick_of(self, key: Hashable) -> Pick | None:
        if isinstance(key, int):
            return OpPick(key)
        return key if isinstance(key, KernelGroupPick) else KernelPick(_name(key))

    def key_of(self, pick: Pick | None) -> Hashable:
        if isinstance(pick, OpPick) and self._open is None and self._seen.window is not None:
            trace = self._seen.window.analysis.trace
            pick = KernelPick(trace.names[trace.ops.name[pick.row]])
        if isinstance(pick, KernelPick):
            # Of a kernel in several groups, the row at the cursor.
            here = isinstance(self._cursor_key, tuple) and _name(self._cursor_key) == pick.name
            return self._cursor_key if here else pick.name
        return pick.row if isinstance(pick, OpPick) else pick

    def opened(self, key: Hashable) -> None:
        window = self._seen.window
        if isinstance(key, int):
            self.post_message(Choose(OpPick(key), page="timeline"))
        elif isinstance(key, KernelGroupPick):
            self.post_message(Choose(key))
            self.action_fold()
        elif window is not None and isinstance(key, (str, tuple)):
            first = self._launches(window, key).key(0)
            self._open = key
            self._kept = (self._filter, self._search, self._sorted, self._down)
            self._filter = self._search = ""
            self.post_message(Choose(self.pick_of(first)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only launches have somewhere to go back to: else the key is the app's."""
        return action != "back" or self._open is not None

    def action_back(self) -> None:
        if self.forget_typed():
            return
        key, self._open = self._open, None
        self._cursor_key = key
        self.post_message(Choose(KernelPick(_name(key))))

    def action_group(self) -> None:
        window = self._seen.window
        if window is None or self._open is not None:
            return
        ways = (_BY_NAME, *groupings(window.analysis))
        place = ways.index(self._by) + 1 if self._by in ways else 0
        self._by = ways[place % len(ways)]
        if len(ways) == 1:
            self.app.notify("This trace has no roles, layers or modules.", severity="warning")
        self.show(self._seen)

    def _tree(self, window: Window, on_cpu: bool) -> TreeRows[KernelReport]:
        if self._groups[:3] != (window, self._within, self._by):
            groups = kernel_groups(window.analysis, self._by, self._within)
            self._groups = (window, self._within, self._by, groups)
        kernels, branches, largest = [], [], {}
        for group in self._groups[3]:
            pick = KernelGroupPick(self._by, group.report.name)
            is_open = self.is_open(pick)
            kernels.append(group.report)
            branches.append(Branch(pick, is_open=is_open))
            largest[group.report.name] = group.kernels[0].name
            if is_open:
                kernels += group.kernels
                branches += [Branch((group.number, row.name), pick, 1) for row in group.kernels]
        table = _table(window, kernels, on_cpu)
        name, *others = table.columns

        def fitted(kernel: KernelReport, cells: int) -> str:
            is_group = kernel.name in largest
            return cut_start(kernel.name, cells) if is_group else name.cell(kernel, cells)

        def mark(kernel: KernelReport) -> Mark:
            return Mark("family", family_of(largest.get(kernel.name, kernel.name)))

        table = replace(table, columns=(replace(name, fit=fitted), *others), mark=mark)
        return TreeRows(table, branches)

    def _launches(self, window: Window, key: str | tuple[int, str]) -> LaunchRows:
        launches = kernel_launches(window.analysis, _name(key), self._within)
        if isinstance(key, tuple):
            group, _ = op_groups(window.analysis, self._by)
            launches = launches.take(group[launches.op] == key[0])
        if window.step is not None:
            launches = launches.take(window.analysis.main_ops[launches.op])
        return LaunchRows(window.analysis, launches)

    def _replace(self, rows: Rows | Empty) -> None:
        super()._replace(rows)
        if self._kept is not None and isinstance(rows, TableRows):
            self._filter, self._search, self._sorted, self._down = self._kept
            self._kept = None
            self._arrange()


def _name(key: Hashable) -> str:
    return str(key[1] if isinstance(key, tuple) else key or "")


def _table(window: Window, kernels: Sequence[KernelReport], on_cpu: bool) -> Table[KernelReport]:
    report = window.report
    steps = report.main_steps.steps
    return kernels_table(kernels, attributed=report.overlapping, on_cpu=on_cpu, steps=steps)
