"""The table of kernels, and of the launches of the one that was opened."""

import re
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from decodescope.analyzer.names.fitted_names import short_kernel
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables.kernels_table import blocks_of, kernels_table
from decodescope.analyzer.tables.launches_table import LaunchRow, launch_columns
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text
from decodescope.tui.commands import Command
from decodescope.tui.model.picks import KernelPick, OpPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table import TABLE_COMMANDS, TablePanel
from decodescope.tui.panels.table_rows import Cell, Rows, TableRows, drawing_of
from decodescope.tui.style.palette import Glyphs, Inks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.reports.kernel_launches import KernelLaunches
    from decodescope.analyzer.trace import Int64s


class LaunchRows(Rows):
    """The launches of one kernel, in order of start; a row's key is its op's row in the trace.

    Nothing is formatted but what is visible, and sorting and filtering work on whole columns.
    """

    def __init__(self, analysis: "Analysis", launches: "KernelLaunches") -> None:
        trace = analysis.trace
        ops = trace.ops.take(launches.op)
        self._analysis = analysis
        self._op = launches.op
        self._shapes = [extent_text(shape.grid) for shape in trace.shapes] + [UNKNOWN]
        self._paths = (*analysis.ranges.paths, UNKNOWN)
        self._step = analysis.steps.op_step[launches.op]
        self._stream, self._device, self._shape = ops.stream, ops.device, ops.shape
        self._node = analysis.ranges.op_node[launches.op]
        nodes = set(self._node.tolist()) - {-1}
        self._around = _around([self._paths[node] for node in nodes])
        self._orders: dict[tuple[int | None, bool], Sequence[int]] = {}
        self._at_ns = launches.at_ns
        self._times = (
            launches.length_ns,
            launches.attributed_ns,
            launches.gap_ns,
            launches.queue_ns,
            launches.latency_ns,
        )
        self._several = len(analysis.busy) > 1
        declared = launch_columns(several_devices=self._several, overlapping=analysis.overlapping)
        self.columns = tuple(column for column in declared if column.shown)
        self._drawings = [drawing_of(column) for column in self.columns]

    def __len__(self) -> int:
        return len(self._op)

    def key(self, row: int) -> Hashable:
        return int(self._op[row])

    def place(self, key: Hashable) -> int | None:
        if not isinstance(key, int):
            return None
        row = int(self._op.searchsorted(key))
        return row if row < len(self._op) and self._op[row] == key else None

    def text(self, row: int) -> str:
        return "\n".join(field(row) for field in self._fields())

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        launch = self._launch(row)
        return [draw(launch, inks, room) for draw in self._drawings]

    def _launch(self, row: int) -> LaunchRow:
        length_ns, attributed_ns, *others = (int(column[row]) for column in self._times)
        gap_ns, queue_ns, latency_ns = (None if ns < 0 else ns for ns in others)
        trace, step, node = self._analysis.trace, int(self._step[row]), int(self._node[row])
        shape = int(self._shape[row])
        return LaunchRow(
            at_ns=int(self._at_ns[row]),
            step=step if step >= 0 else None,
            length_ns=length_ns,
            attributed_ns=attributed_ns,
            gap_ns=gap_ns,
            queue_ns=queue_ns,
            latency_ns=latency_ns,
            device=trace.device_label(int(self._device[row])),
            stream=int(self._stream[row]),
            grid=trace.shapes[shape].grid if shape >= 0 else None,
            range=self._paths[node] if node >= 0 else None,
            around=self._around,
        )

    def values(self, column: int) -> Sequence[object]:
        found: Sequence[object] = self._column(column).tolist()
        return found

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        if column is None:
            return range(len(self))
        known = self._orders.get((column, down))
        if known is None:
            known = self._orders[column, down] = self._sorted(self._column(column), down)
        return known

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        import numpy as np

        matches = np.zeros(len(self), dtype=np.bool_)
        for (first, index), field in zip(self._distinct, self._fields(), strict=True):
            hits = [pattern.search(field(row)) is not None for row in first]
            matches |= np.array(hits, dtype=np.bool_)[index]
        return set(np.flatnonzero(matches).tolist())

    @cached_property
    def _distinct(self) -> "list[tuple[list[int], Int64s]]":
        """For each of `_fields` the first row of each distinct text, and each row's place there."""
        import numpy as np

        columns = (self._step, self._stream, self._shape, self._node)
        distinct = (np.unique(column, return_index=True, return_inverse=True) for column in columns)
        return [(first.tolist(), index) for _, first, index in distinct]

    def _fields(self) -> tuple[Callable[[int], str], ...]:
        """The texts that filter and search look in."""
        return (
            lambda row: f"step {self._step[row]}",
            lambda row: f"stream {self._stream[row]}",
            lambda row: self._shapes[self._shape[row]],
            lambda row: self._paths[self._node[row]],
        )

    def _column(self, column: int) -> "Int64s":
        device = (self._device,) if self._several else ()
        grids = (shape.grid for shape in self._analysis.trace.shapes)
        blocks = (*(-1 if grid is None else blocks_of(grid) for grid in grids), -1)
        columns: tuple[Int64s, ...] = (
            *(self._at_ns, self._step, *self._times, *device, self._stream),
            *(_ranked(self._shape, blocks), _ranked(self._node, self._paths)),
        )
        return columns[column]

    def _sorted(self, values: "Int64s", down: bool) -> Sequence[int]:
        """Unknown values (-1) are last."""
        import numpy as np

        order = np.argsort(-values if down else values, kind="stable")
        order = np.concatenate((order[values[order] >= 0], order[values[order] < 0]))
        return array("q", order.tobytes())


def _around(paths: Sequence[str]) -> str:
    """The path of the range around all these ranges, with a "/" at its end; "" if there is none."""
    distinct = [path.split("/") for path in paths]
    common = [parts[0] for parts in zip(*distinct, strict=False) if len(set(parts)) == 1]
    # Parts after one that differs may be equal again.
    while common and any(
        parts[: len(common)] != common or len(parts) == len(common) for parts in distinct
    ):
        common.pop()
    return "".join(f"{part}/" for part in common)


def _ranked(index: "NDArray[np.integer]", table: Sequence[object]) -> "Int64s":
    """For each row the place of `table[index]` among the sorted distinct entries; -1 for the last,
    which stands for none."""
    import numpy as np

    places = {entry: place for place, entry in enumerate(sorted(set(table[:-1])))}  # type: ignore[type-var]
    ranks = np.array([*(places[entry] for entry in table[:-1]), -1], dtype=np.int64)
    return np.asarray(ranks[index], dtype=np.int64)


_TITLE_CELLS = 48


class KernelTablePanel(TablePanel):
    """Every kernel of the window, or of the range that it is narrowed to. Enter shows the launches
    of a kernel, enter on a launch shows it on the timeline, escape goes back to the kernels."""

    NAME = "kernels"
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        *TABLE_COMMANDS,
        Command(
            "back", "escape", "Back", "From the launches of a kernel to all kernels", shown="esc"
        ),
    )

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
            title = f"Launches of {short_kernel(self._open, _TITLE_CELLS)}"
        else:
            title = f"{self._noun.capitalize()}s"
            if self._window is not None:
                title += f" per {self._window.per}"
                title += " by attributed time" * self._window.report.overlapping
        return title if self._within is None else f"{title} in {self._within}"

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
