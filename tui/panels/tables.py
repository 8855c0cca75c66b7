"""The tables of the last window: top kernels, and where the GPU waited."""

from dataclasses import dataclass

from decodescope.analyzer.per_step import GapRow, KernelRow
from decodescope.tui.formatting import duration, microseconds, number, percent
from decodescope.tui.glyphs import horizontal_bar
from decodescope.tui.palette import GAP_LETTERS
from decodescope.tui.panels.panel import Panel, Row, Sheet

MEANINGS = {
    "unlinked": "launched outside the trace",
    "graph_internal": "between ops of one CUDA graph",
    "host_wait": "the CPU launched too late",
    "kernel_floor": "the hardware's minimum",
    "dependency": "waited for another op or event",
    "launch_latency": "launched in time, started late",
}


@dataclass(frozen=True, slots=True)
class KernelTable:
    """`names` are the shortened names of `rows`; `per` is "step", or "trace" without steps."""

    title: str
    note: str
    names: tuple[str, ...]
    rows: tuple[KernelRow, ...]
    per: str
    hint: str


@dataclass(frozen=True, slots=True)
class GapTable:
    title: str
    note: str
    rows: tuple[GapRow, ...]
    per: str
    hint: str


class KernelsPanel(Panel[KernelTable]):
    """Name, count and µs per step, share of the kernel time, and a bar of it."""

    def draw(self, width: int, height: int) -> Sheet:
        table, inks = self._data, self._brush.inks
        if not table.rows:
            return Sheet(table.title, table.note, [Row().add(table.hint, inks.faint)])
        bar = 0 if width < 44 else min(12, width // 6)
        fixed = 7 + 9 + 8 + (bar + 1 if bar else 0)
        names = max(width - fixed, 6)
        head = Row().left("kernel", names, inks.dim).right(f"/{table.per}", 7, inks.dim)
        head.right("µs", 9, inks.dim).right("share", 8, inks.dim)
        rows = [head]
        largest = max(row.share for row in table.rows)
        for name, kernel in zip(table.names, table.rows, strict=True):
            if len(rows) >= height:
                break
            row = Row().left(name, names, inks.text)
            row.right(number(kernel.count), 7, inks.text)
            row.right(microseconds(kernel.ns), 9, inks.strong)
            row.right(f"{percent(kernel.share)} %", 8, inks.text)
            if bar:
                share = kernel.share / largest if largest > 0 else 0.0
                piece = horizontal_bar(share, bar, self._brush.unicode)
                row.add(" ", inks.text).add(piece, inks.accent)
            rows.append(row)
        return Sheet(table.title, table.note, rows)


class GapsPanel(Panel[GapTable]):
    """Class, meaning, gaps and time per step, share of the window, the largest gap."""

    def draw(self, width: int, height: int) -> Sheet:
        table, inks = self._data, self._brush.inks
        if not table.rows:
            return Sheet(table.title, table.note, [Row().add(table.hint, inks.faint)])
        names = 17 if self._brush.inks.color else 19
        fixed = names + 7 + 9 + 8
        largest = 0 if width < fixed + 9 else 10
        meaning = width - fixed - largest - 1
        meaning = meaning if meaning >= 14 else 0
        if not meaning:
            names = max(width - 7 - 9 - 8 - largest, 8)
        head = Row().left("idle because", names, inks.dim)
        head.left(" meaning", meaning + 1, inks.dim) if meaning else None
        head.right(f"/{table.per}", 7, inks.dim).right("µs", 9, inks.dim)
        head.right("window", 8, inks.dim)
        head.right("largest", largest, inks.dim) if largest else None
        rows = [head]
        for gap in table.rows[: max(height - 1, 0)]:
            rows.append(self._line(gap, names, meaning, largest))
        return Sheet(table.title, table.note, rows)

    def _line(self, gap: GapRow, names: int, meaning: int, largest: int) -> Row:
        inks = self._brush.inks
        row = Row().add(self._brush.glyphs.swatch + " ", inks.gap(gap.gap_class))
        if not inks.color:
            row.add(GAP_LETTERS.get(gap.gap_class, "?") + " ", inks.strong)
        row.left(gap.gap_class, names - row.cells, inks.text)
        if meaning:
            row.left(" " + MEANINGS.get(gap.gap_class, ""), meaning + 1, inks.dim)
        row.right(number(gap.count), 7, inks.text)
        row.right(microseconds(gap.ns), 9, inks.strong)
        row.right(f"{percent(gap.window_share)} %", 8, inks.text)
        return row.right(duration(gap.max_ns), largest, inks.dim) if largest else row
