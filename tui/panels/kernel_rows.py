"""The rows of the kernels page: kernels, and the launches of one of them."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from decodescope.analyzer.formatting import (
    UNKNOWN,
    extent_text,
    microseconds,
    number,
    percent,
    significant,
)
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.views.class_colors import FAMILY_LETTERS
from decodescope.analyzer.views.kernel_names import short_kernels
from decodescope.analyzer.views.mangled import readable_kernel
from decodescope.analyzer.views.names import cut_middle
from decodescope.tui.panels.table_rows import Cell, Column, Rows
from decodescope.tui.style.glyphs import Glyphs, horizontal_bar
from decodescope.tui.style.palette import Inks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.reports.kernel_launches import KernelLaunches
    from decodescope.analyzer.trace import Int64s

_BAR_CELLS = 10


class KernelRows(Rows):
    """Kernels; counts and times are divided by `steps`, 0 for a trace without steps.

    `critical`: ops overlap, so critical time stays where there is no room for both times.
    """

    def __init__(
        self,
        kernels: Sequence[KernelReport],
        steps: int,
        critical: bool,
        glyphs: Callable[[], Glyphs],
    ) -> None:
        self._kernels = kernels
        self._steps = steps or 1
        self._critical = critical
        self._glyphs = glyphs
        self._most = max((self._share(kernel) for kernel in kernels), default=0.0)
        self._names = lru_cache(maxsize=2)(self._short)
        per = "step" if steps else "trace"
        rates = (Column("GB/s", priority=4), Column("of peak %", priority=3))
        self._rates = any(kernel.roofline is not None for kernel in kernels)
        self.columns = (
            Column("", "left", first="up"),
            Column("kernel", "left", first="up", flexible=True, least=28),
            Column(f"calls/{per}", priority=2),
            Column(f"µs/{per}", priority=9 if critical else 0),
            Column("critical µs", priority=0 if critical else 9),
            Column("mean µs", priority=5),
            Column("share %", priority=1),
            Column("share", "left", priority=8),
            *(rates if self._rates else ()),
            Column("grid", "left", priority=6),
            Column("regs", priority=7),
        )

    def __len__(self) -> int:
        return len(self._kernels)

    def key(self, row: int) -> Hashable:
        return self._kernels[row].name

    def place(self, key: Hashable) -> int | None:
        return self._places.get(key)

    def text(self, row: int) -> str:
        name = self._kernels[row].name
        return f"{name}\n{readable_kernel(name)}\n{family_of(name)}"

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        kernel, glyphs = self._kernels[row], self._glyphs()
        family, share = family_of(kernel.name), self._share(kernel)
        ink, other = inks.family(family), inks.dim
        bar = horizontal_bar(share / self._most if self._most else 0.0, _BAR_CELLS, glyphs)
        shape = kernel.shape
        grid = extent_text(shape.grid) if shape else UNKNOWN
        return (
            Cell(inks.mark(FAMILY_LETTERS[family], glyphs.swatch), ink),
            Cell(self._names(room)[kernel.name]),
            Cell(number(kernel.count / self._steps)),
            Cell(microseconds(kernel.total_ns / self._steps), other if self._critical else None),
            Cell(microseconds(kernel.critical_ns / self._steps), None if self._critical else other),
            Cell(microseconds(kernel.mean_ns)),
            Cell(percent(share), inks.strong),
            Cell(bar, ink),
            *(self._rate_cells(kernel) if self._rates else ()),
            Cell(grid + (f" +{kernel.shapes - 1}" if kernel.shapes > 1 else "")),
            Cell(_figure(shape.registers_per_thread if shape else None)),
        )

    def values(self, column: int) -> Sequence[object]:
        title = self.columns[column].title
        of: dict[str, Callable[[KernelReport], object]] = {
            "": lambda one: family_of(one.name),
            "kernel": lambda one: readable_kernel(one.name).lower(),
            "critical µs": lambda one: one.critical_ns,
            "mean µs": lambda one: one.mean_ns,
            "share %": self._share,
            "share": self._share,
            "GB/s": lambda one: one.roofline and one.roofline.bytes_per_s,
            "of peak %": lambda one: one.roofline and one.roofline.share_of_limit,
            "grid": lambda one: one.shape and one.shape.grid and _blocks(one.shape.grid),
            "regs": lambda one: one.shape and one.shape.registers_per_thread,
        }
        if title.startswith("calls"):
            return [kernel.count for kernel in self._kernels]
        if title not in of:
            return [kernel.total_ns for kernel in self._kernels]
        return [of[title](kernel) for kernel in self._kernels]

    def _share(self, kernel: KernelReport) -> float:
        return kernel.critical_share if self._critical else kernel.share

    def _rate_cells(self, kernel: KernelReport) -> tuple[Cell, Cell]:
        roof = kernel.roofline
        if roof is None:
            return Cell(UNKNOWN), Cell(UNKNOWN)
        return Cell(significant(roof.bytes_per_s / 1e9)), Cell(percent(roof.share_of_limit))

    def _short(self, cells: int) -> dict[str, str]:
        return short_kernels((kernel.name for kernel in self._kernels), cells)

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {kernel.name: row for row, kernel in enumerate(self._kernels)}


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
        several = len(analysis.busy) > 1
        times = {
            "took µs": (launches.length_ns, 0),
            "critical µs": (launches.critical_ns, 5 if analysis.overlapping else 8),
            "gap before µs": (launches.gap_ns, 1),
            "queued µs": (launches.queue_ns, 4),
            "call to start µs": (launches.latency_ns, 6),
        }
        self._at_ns = launches.at_ns
        self._times = [column for column, _ in times.values()]
        self._several = several
        self.columns = (
            Column("at ms", first="up"),
            Column("step", priority=2, first="up"),
            *(Column(title, priority=priority) for title, (_, priority) in times.items()),
            *((Column("device", priority=3, first="up"),) if several else ()),
            Column("stream", priority=9, first="up"),
            Column("grid", "left", priority=7),
            Column("range", "left", priority=1, first="up", flexible=True, least=16),
        )

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
        step = int(self._step[row])
        device = Cell(str(self._analysis.trace.device_label(int(self._device[row]))))
        return (
            Cell(f"{self._at_ns[row] / 1e6:,.4f}"),
            Cell(str(step) if step >= 0 else UNKNOWN),
            *(Cell(_us(int(column[row]))) for column in self._times),
            *((device,) if self._several else ()),
            Cell(str(self._stream[row])),
            Cell(self._shapes[self._shape[row]]),
            Cell(
                cut_middle(self._paths[self._node[row]].removeprefix(self._around), room), inks.dim
            ),
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
        blocks = (*(_blocks(shape.grid) for shape in self._analysis.trace.shapes), -1)
        columns: tuple[Int64s, ...] = (
            *(self._at_ns, self._step, *self._times, *device, self._stream),
            *(_ranked(self._shape, blocks), _ranked(self._node, self._paths)),
        )
        return columns[column]

    def _sorted(self, values: "Int64s", down: bool) -> list[int]:
        """Unknown values (-1) are last."""
        import numpy as np

        order = np.argsort(-values if down else values, kind="stable")
        order = np.concatenate((order[values[order] >= 0], order[values[order] < 0]))
        rows: list[int] = order.tolist()
        return rows


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


@lru_cache(maxsize=4096)
def family_of(name: str) -> str:
    """The kind of work that a kernel does."""
    from decodescope.analyzer.timing.op_families import FAMILIES, kernel_family

    return FAMILIES[kernel_family(name)]


def _blocks(grid: Iterable[int] | None) -> int:
    """The number of blocks of a grid, -1 if it is not known."""
    if grid is None:
        return -1
    x, y, z = grid
    return x * y * z


def _us(ns: int) -> str:
    return UNKNOWN if ns < 0 else microseconds(ns)


def _figure(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"
