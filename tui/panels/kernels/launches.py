"""The launches of one kernel as rows of a table."""

import re
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from decodescope.analyzer.tables.kernels_table import blocks_of
from decodescope.analyzer.tables.launches_table import LaunchRow, launch_columns
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text
from decodescope.tui.panels.table_rows import Cell, Rows, drawing_of
from decodescope.tui.style.palette import Inks

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

        found = np.zeros(len(self), dtype=np.bool_)
        for (first, index), field in zip(self._distinct, self._fields(), strict=True):
            hits = [pattern.search(field(row)) is not None for row in first]
            found |= np.array(hits, dtype=np.bool_)[index]
        return set(np.flatnonzero(found).tolist())

    @cached_property
    def _distinct(self) -> "list[tuple[list[int], Int64s]]":
        """For each of `_fields` the first row of each distinct text, and each row's place there."""
        import numpy as np

        columns = (self._step, self._stream, self._shape, self._node)
        found = (np.unique(one, return_index=True, return_inverse=True) for one in columns)
        return [(first.tolist(), index) for _, first, index in found]

    def _fields(self) -> tuple[Callable[[int], str], ...]:
        """What filter and search look in."""
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
        one[: len(common)] != common or len(one) == len(common) for one in distinct
    ):
        common.pop()
    return "".join(f"{part}/" for part in common)


def _ranked(index: "NDArray[np.integer]", table: Sequence[object]) -> "Int64s":
    """For each row the place of `table[index]` among the sorted distinct entries; -1 for the last,
    which stands for none."""
    import numpy as np

    places = {one: place for place, one in enumerate(sorted(set(table[:-1])))}  # type: ignore[type-var]
    ranks = np.array([*(places[one] for one in table[:-1]), -1], dtype=np.int64)
    return np.asarray(ranks[index], dtype=np.int64)
