"""The kernels of a window as rows of a table."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from decodescope.analyzer.names.kernel_names import ShortNames
from decodescope.analyzer.names.mangled import readable_kernel
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    extent_text,
    microseconds,
    number,
    percent,
    significant,
)
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS
from decodescope.tui.panels.table_rows import Cell, Column, Rows
from decodescope.tui.style.palette import Glyphs, Inks, horizontal_bar

if TYPE_CHECKING:
    pass

_BAR_CELLS = 10


class KernelRows(Rows):
    """Kernels; counts and times are divided by `steps`, 0 for a trace without steps.

    `attributed`: ops overlap, so attributed time stays where there is no room for both times.
    """

    def __init__(
        self,
        kernels: Sequence[KernelReport],
        steps: int,
        attributed: bool,
        glyphs: Callable[[], Glyphs],
    ) -> None:
        self._kernels = kernels
        self._steps = steps or 1
        self._attributed = attributed
        self._glyphs = glyphs
        self._most = max((self._share(kernel) for kernel in kernels), default=0.0)
        self._names = ShortNames(kernel.name for kernel in kernels)
        per = "step" if steps else "trace"
        rates = (Column("GB/s", priority=4), Column("of peak %", priority=3))
        self._rates = any(kernel.roofline is not None for kernel in kernels)
        self.columns = (
            Column("", "left", first="up"),
            Column("kernel", "left", first="up", flexible=True, least=28),
            Column(f"calls/{per}", priority=2),
            Column(f"µs/{per}", priority=9 if attributed else 0),
            Column("attributed µs", priority=0 if attributed else 9),
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
        return "\n".join((name, readable_kernel(name), short_name(name), family_of(name)))

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        kernel, glyphs = self._kernels[row], self._glyphs()
        family, share = family_of(kernel.name), self._share(kernel)
        ink, other = inks.family(family), inks.dim
        bar = horizontal_bar(share / self._most if self._most else 0.0, _BAR_CELLS, glyphs)
        shape = kernel.shape
        grid = extent_text(shape.grid) if shape else UNKNOWN
        return (
            Cell(inks.mark(FAMILY_LETTERS[family], glyphs.swatch), ink),
            Cell(self._names.of(kernel.name, room)),
            Cell(number(kernel.count / self._steps)),
            Cell(microseconds(kernel.total_ns / self._steps), other if self._attributed else None),
            Cell(
                microseconds(kernel.attributed_ns / self._steps),
                None if self._attributed else other,
            ),
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
            "kernel": lambda one: short_name(one.name).lower(),
            "attributed µs": lambda one: one.attributed_ns,
            "mean µs": lambda one: one.mean_ns,
            "share %": self._share,
            "share": self._share,
            "GB/s": lambda one: one.roofline and one.roofline.bytes_per_s,
            "of peak %": lambda one: one.roofline and one.roofline.share_of_limit,
            "grid": lambda one: one.shape and one.shape.grid and blocks_of(one.shape.grid),
            "regs": lambda one: one.shape and one.shape.registers_per_thread,
        }
        if title.startswith("calls"):
            return [kernel.count for kernel in self._kernels]
        if title not in of:
            return [kernel.total_ns for kernel in self._kernels]
        return [of[title](kernel) for kernel in self._kernels]

    def _share(self, kernel: KernelReport) -> float:
        return kernel.attributed_share if self._attributed else kernel.share

    def _rate_cells(self, kernel: KernelReport) -> tuple[Cell, Cell]:
        roof = kernel.roofline
        if roof is None:
            return Cell(UNKNOWN), Cell(UNKNOWN)
        return Cell(significant(roof.bytes_per_s / 1e9)), Cell(percent(roof.share_of_limit))

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {kernel.name: row for row, kernel in enumerate(self._kernels)}


@lru_cache(maxsize=4096)
def family_of(name: str) -> str:
    """The kind of work that a kernel does."""
    from decodescope.analyzer.names.rule_files import kernel_meaning

    return kernel_meaning(name).family


def blocks_of(grid: Iterable[int] | None) -> int:
    """The number of blocks of a grid, -1 if it is not known."""
    if grid is None:
        return -1
    x, y, z = grid
    return x * y * z


def _figure(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"
