"""The tables of the last window: top kernels, and why the GPU was idle."""

from dataclasses import dataclass

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.reports.per_step import GapRow, KernelRow, gap_rows, kernel_rows
from decodescope.analyzer.text.formatting import duration, microseconds, number, percent
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.analyzer.vocabulary.words import CPU_GAP_MEANINGS, GAP_MEANINGS
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet
from decodescope.tui.style.palette import Inks, horizontal_bar

_NAME_CELLS = 17
_MEANING_CELLS = 31


Cells = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TopKernels:
    """`families` of `rows`; counts and times are per `per` ("step" or "trace"). `attributed`: times
    and shares are of attributed time, because ops overlap."""

    noun: str
    attributed: bool
    note: str
    per: str
    rows: tuple[KernelRow, ...]
    families: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopGaps:
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


def _steps_note(window: Window) -> str:
    steps = len(window.report.steps)
    return f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"


class KernelsPanel(Panel[TopKernels]):
    """Name, count and µs per step, share of the kernel time, and a bar of it."""

    NAME = "kernels_top"
    PART = "window"

    def pick(self, view: View, moment: Moment) -> TopKernels | Empty:
        noun, window = "operator" if view.on_cpu else "kernel", view.window
        if window is None:
            return Empty(f"Top {noun}s", view.waiting)
        rows = kernel_rows(window.report)[: len(window.families)]
        if not rows:
            return Empty(f"Top {noun}s", f"no {noun}s in this window", _steps_note(window))
        attributed, note = window.report.overlapping, _steps_note(window)
        return TopKernels(noun, attributed, note, window.per, rows, window.families)

    def as_text(self, data: TopKernels) -> list[str]:
        time = "attributed time" if data.attributed else "kernel time"
        head = f"top {data.noun}s ({data.note}): count and µs of {time} per {data.per}, share of it"
        return [head, *(f"  {_text_numbers(row)}  {row.name}" for row in data.rows)]

    def draw(self, data: TopKernels, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        bar = 0 if width < 44 else min(12, width // 7)
        cells = number_cells(width)
        names = max(width - sum(cells) - (bar + 1 if bar else 0), 6)
        head = Row().left(data.noun, names, inks.dim).right(f"/{data.per}", cells[0], inks.dim)
        unit = "attr. µs" if data.attributed and cells[1] > len("attr. µs") else "µs"
        head.right(unit, cells[1], inks.dim).right("share", cells[2], inks.dim)
        rows = [head]
        largest = max(row.share for row in data.rows)
        shown = list(zip(data.families, data.rows, strict=True))[: max(height - 1, 0)]
        short = short_kernels((kernel.name for _, kernel in shown), names - 1)
        for family, kernel in shown:
            row = Row().left(short[kernel.name], names, inks.text)
            _numbers(row, cells, kernel, inks)
            if bar:
                share = kernel.share / largest if largest > 0 else 0.0
                piece = horizontal_bar(share, bar, self._brush.glyphs)
                row.add(" ", inks.text).add(piece, inks.family(family))
            rows.append(row)
        by = " by attributed time" if data.attributed else ""
        return Sheet(rows, f"Top {data.noun}s{by}", data.note)


class GapsPanel(Panel[TopGaps]):
    """Class, meaning, gaps and time per step, share of the window, the largest gap."""

    NAME = "gaps_top"
    PART = "window"

    def pick(self, view: View, moment: Moment) -> TopGaps | Empty:
        if view.window is None:
            return Empty("Idle gaps", view.waiting)
        note, rows = _steps_note(view.window), gap_rows(view.window.report)
        if not rows:
            return Empty("Idle gaps", "no gaps in this window", note)
        return TopGaps(
            note, view.window.per, rows, CPU_GAP_MEANINGS if view.on_cpu else GAP_MEANINGS
        )

    def as_text(self, data: TopGaps) -> list[str]:
        head = f"idle gaps ({data.note}): gaps and µs per {data.per}, share of the window"
        return [head, *(f"  {gap.name:<16} {_text_numbers(gap)}" for gap in data.rows)]

    def draw(self, data: TopGaps, width: int, height: int) -> Sheet:
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
