"""The tables of the last window: top kernels, and where the GPU waited."""

from dataclasses import dataclass

from decodescope.analyzer.formatting import duration, microseconds, number, percent
from decodescope.analyzer.reports.per_step import GapRow, KernelRow
from decodescope.analyzer.views.class_colors import GAP_LETTERS
from decodescope.analyzer.views.names import shorten_kernel
from decodescope.tui.panels.panel import Panel, Row, Sheet
from decodescope.tui.style.glyphs import horizontal_bar

MEANINGS = {
    "unlinked": "launched outside the trace",
    "graph_internal": "between ops of one CUDA graph",
    "host_wait": "the CPU launched too late",
    "kernel_floor": "the hardware's minimum",
    "dependency": "waited for another op or event",
    "launch_latency": "launched in time, started late",
}


CPU_MEANINGS = {"host_wait": "Python and dispatch meanwhile"}
_NAME_CELLS = 17
_MEANING_CELLS = 31


@dataclass(frozen=True, slots=True)
class KernelTable:
    """`families` of `rows`; `per` is "step", or "trace" without steps."""

    title: str
    note: str
    families: tuple[str, ...]
    rows: tuple[KernelRow, ...]
    per: str
    hint: str
    noun: str = "kernel"


@dataclass(frozen=True, slots=True)
class GapTable:
    title: str
    note: str
    rows: tuple[GapRow, ...]
    per: str
    hint: str
    on_cpu: bool = False

    def meaning(self, gap_class: str) -> str:
        """The class in plain words."""
        words = CPU_MEANINGS if self.on_cpu and gap_class in CPU_MEANINGS else MEANINGS
        return words.get(gap_class, "")


def number_cells(width: int) -> tuple[int, int, int]:
    """Cells of the columns count, µs and share in a table of `width` cells."""
    return (7, 9, 8) if width >= 46 else (6, 7, 7)


class KernelsPanel(Panel[KernelTable]):
    """Name, count and µs per step, share of the kernel time, and a bar of it."""

    def draw(self, width: int, height: int) -> Sheet:
        table, inks = self._data, self._brush.inks
        if not table.rows:
            return Sheet(table.title, table.note, [Row().add(table.hint, inks.faint)])
        bar = 0 if width < 44 else min(12, width // 7)
        cells = number_cells(width)
        names = max(width - sum(cells) - (bar + 1 if bar else 0), 6)
        head = Row().left(table.noun, names, inks.dim).right(f"/{table.per}", cells[0], inks.dim)
        head.right("µs", cells[1], inks.dim).right("share", cells[2], inks.dim)
        rows = [head]
        largest = max(row.share for row in table.rows)
        for family, kernel in zip(table.families, table.rows, strict=True):
            if len(rows) >= height:
                break
            row = Row().left(shorten_kernel(kernel.name, names - 1), names, inks.text)
            row.right(number(kernel.count), cells[0], inks.text)
            row.right(microseconds(kernel.ns), cells[1], inks.strong)
            row.right(f"{percent(kernel.share)} %", cells[2], inks.text)
            if bar:
                share = kernel.share / largest if largest > 0 else 0.0
                piece = horizontal_bar(share, bar, self._brush.unicode)
                row.add(" ", inks.text).add(piece, inks.family(family))
            rows.append(row)
        return Sheet(table.title, table.note, rows)


class GapsPanel(Panel[GapTable]):
    """Class, meaning, gaps and time per step, share of the window, the largest gap."""

    def draw(self, width: int, height: int) -> Sheet:
        table, inks = self._data, self._brush.inks
        if not table.rows:
            return Sheet(table.title, table.note, [Row().add(table.hint, inks.faint)])
        cells = number_cells(width)
        largest = 10 if width >= _NAME_CELLS + sum(cells) + 10 else 0
        meaning = width - _NAME_CELLS - sum(cells) - largest
        meaning = meaning if meaning >= _MEANING_CELLS else 0
        names = width - sum(cells) - largest - meaning
        head = Row().left("idle because", names, inks.dim).left(" meaning", meaning, inks.dim)
        head.right(f"/{table.per}", cells[0], inks.dim).right("µs", cells[1], inks.dim)
        head.right("window", cells[2], inks.dim).right("largest", largest, inks.dim)
        rows = [head]
        explain = not meaning and height > 2 * len(table.rows)
        for gap in table.rows[: max(height - 1, 0)]:
            rows.append(self._line(gap, names, meaning, cells, largest))
            if explain:
                rows.append(Row().to(2).add(table.meaning(gap.gap_class), inks.faint))
        return Sheet(table.title, table.note, rows)

    def _line(
        self, gap: GapRow, names: int, meaning: int, cells: tuple[int, int, int], largest: int
    ) -> Row:
        inks = self._brush.inks
        swatch = self._brush.glyphs.swatch if inks.color else GAP_LETTERS.get(gap.gap_class, "?")
        row = Row().add(f"{swatch} ", inks.gap(gap.gap_class))
        row.left(gap.gap_class, names - 2, inks.text)
        row.left(" " + self._data.meaning(gap.gap_class), meaning, inks.dim)
        row.right(number(gap.count), cells[0], inks.text)
        row.right(microseconds(gap.ns), cells[1], inks.strong)
        row.right(f"{percent(gap.window_share)} %", cells[2], inks.text)
        return row.right(duration(gap.max_ns), largest, inks.dim)
