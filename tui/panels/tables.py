"""The tables of the last window: top kernels, and why the GPU was idle."""

from dataclasses import dataclass

from decodescope.analyzer.formatting import duration, microseconds, number, percent
from decodescope.analyzer.reports.per_step import GapRow, KernelRow, gap_rows
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.analyzer.vocabulary.words import CPU_GAP_MEANINGS, GAP_MEANINGS
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Brush, Empty, Panel, Row, Sheet, TextLine
from decodescope.tui.panels.table_layout import table_lines
from decodescope.tui.panels.table_rows import TableRows, text_lines
from decodescope.tui.style.glyphs import Glyphs
from decodescope.tui.style.palette import Inks

_NAME_CELLS = 17
_MEANING_CELLS = 31
_MOST_KERNELS, _LEAST_NAME = 60, 12


Cells = tuple[int, int, int]


_TOP_KERNELS = ("name", "count", "total_ns", "critical_ns", "share", "critical_share")


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The first kernels, per `per` ("step" or "trace"). `critical`: their times and shares are
    critical time, because ops overlap."""

    rows: TableRows[KernelReport]
    critical: bool
    note: str
    per: str


@dataclass(frozen=True, slots=True)
class GapTable:
    """`meanings` of the gap classes in plain words."""

    note: str
    per: str
    rows: tuple[GapRow, ...]
    meanings: dict[str, str]


def number_cells(width: int) -> Cells:
    """Cells of the columns count, µs and share in a table of `width` cells."""
    return (7, 9, 8) if width >= 46 else (6, 7, 7)


def _numbers(row: Row, cells: Cells, table_row: KernelRow, inks: Inks) -> Row:
    row.right(number(table_row.count), cells[0], inks.text)
    row.right(microseconds(table_row.ns), cells[1], inks.strong)
    return row.right(f"{percent(table_row.share)} %", cells[2], inks.text)


def _text_numbers(row: KernelRow) -> str:
    return f"{row.count:>9.1f} {row.ns / 1e3:>12.1f} {row.share:>7.1%}"


def _noun(view: View) -> str:
    return "operators" if view.on_cpu else "kernels"


def _steps_note(window: Window) -> str:
    steps = len(window.report.steps)
    return f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"


class KernelsPanel(Panel[KernelTable]):
    """The kernels that take most time."""

    NAME = "kernels_top"
    PART = "window"

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        self._window: Window | None = None
        self._picked: KernelTable | Empty = Empty("", "")
        super().__init__(brush, view, moment)

    def pick(self, view: View, moment: Moment) -> KernelTable | Empty:
        if view.window is None:
            return Empty(f"Top {_noun(view)}", view.waiting)
        if view.window is not self._window:
            self._window = view.window
            self._picked = self._table(view.window, view.on_cpu)
        return self._picked

    def _table(self, window: Window, on_cpu: bool) -> KernelTable | Empty:
        report = window.report
        table = kernels_table(
            report.kernels,
            critical=report.overlapping,
            on_cpu=on_cpu,
            steps=len(report.steps),
            most=_MOST_KERNELS,
        )
        if not table.rows:
            return Empty(
                f"Top {table.noun}", f"no {table.noun} in this window", _steps_note(window)
            )
        not_ranked_by = "total_ns" if report.overlapping else "critical_ns"
        keys = [key for key in _TOP_KERNELS if key != not_ranked_by]
        rows = TableRows(table.only(*keys, least=_LEAST_NAME), self._glyphs)
        return KernelTable(rows, report.overlapping, _steps_note(window), window.per)

    def as_text(self, data: KernelTable) -> list[TextLine]:
        return [
            self._title(data, f" per {data.per} ({data.note})"),
            *text_lines(data.rows, self._brush.inks),
        ]

    def draw(self, data: KernelTable, width: int, height: int) -> Sheet:
        rows = table_lines(data.rows, width, height, self._brush)
        return Sheet(rows, self._title(data, ""), data.note)

    def _title(self, data: KernelTable, more: str) -> str:
        by = " by critical time" if data.critical else ""
        return f"Top {data.rows.table.noun}{by}{more}"

    def _glyphs(self) -> Glyphs:
        return self._brush.glyphs


class GapsPanel(Panel[GapTable]):
    """Class, meaning, gaps and time per step, share of the window, the largest gap."""

    NAME = "gaps_top"
    PART = "window"

    def pick(self, view: View, moment: Moment) -> GapTable | Empty:
        if view.window is None:
            return Empty("Idle gaps", view.waiting)
        note, rows = _steps_note(view.window), gap_rows(view.window.report)
        if not rows:
            return Empty("Idle gaps", "no gaps in this window", note)
        return GapTable(
            note, view.window.per, rows, CPU_GAP_MEANINGS if view.on_cpu else GAP_MEANINGS
        )

    def as_text(self, data: GapTable) -> list[str]:
        head = f"idle gaps ({data.note}): gaps and µs per {data.per}, share of the window"
        return [head, *(f"  {gap.name:<16} {_text_numbers(gap)}" for gap in data.rows)]

    def draw(self, data: GapTable, width: int, height: int) -> Sheet:
        inks, cells = self._brush.inks, number_cells(width)
        largest = 10 if width >= _NAME_CELLS + sum(cells) + 10 else 0
        meaning = width - _NAME_CELLS - sum(cells) - largest
        meaning = meaning if meaning >= _MEANING_CELLS else 0
        names = width - sum(cells) - largest - meaning
        head = Row().left("idle because", names, inks.dim).left(" meaning", meaning, inks.dim)
        head.right(f"/{data.per}", cells[0], inks.dim).right("µs", cells[1], inks.dim)
        head.right("window", cells[2], inks.dim).right("largest", largest, inks.dim)
        rows = [head]
        for gap in data.rows[: max(height - 1, 0)]:
            words = data.meanings.get(gap.name, "")
            letter = GAP_LETTERS.get(gap.name, "?")
            swatch = inks.mark(letter, self._brush.glyphs.swatch)
            row = Row().add(f"{swatch} ", inks.gap(gap.name))
            row.left(gap.name, names - 2, inks.text).left(f" {words}", meaning, inks.dim)
            _numbers(row, cells, gap, inks).right(duration(gap.max_ns), largest, inks.dim)
            rows.append(row)
            if not meaning and height > 2 * len(data.rows):
                rows.append(Row().to(2).add(words, inks.faint))
        return Sheet(rows, "Idle gaps", data.note)
