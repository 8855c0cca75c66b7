"""Where the time of one step goes, down to the physical limit, as bars on one scale."""

from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.analyzer.schema.report import GAP_CLASSES, WaterfallPart
from decodescope.analyzer.text.formatting import duration, percent, signed_duration
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS
from decodescope.analyzer.vocabulary.words import CPU_GAP_MEANINGS, GAP_MEANINGS, part_words
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine
from decodescope.tui.style.palette import horizontal_bar

TITLE = "Where one profiled step goes"
_MEANINGS = {
    "limit": "no step here can be faster",
    "kernel_inefficiency": "kernels below the bandwidth",
    "busy": "kernels ran",
    "host_tail": "until the next step begins",
}
_NAME_CELLS, _TIME_CELLS, _SHARE_CELLS, _MEANING_CELLS = 25, 9, 8, 32
_LEAST_BAR = 8


@dataclass(frozen=True, slots=True)
class WaterfallData:
    """The parts of the step with the median time, those of gap classes only if they occurred."""

    parts: tuple[WaterfallPart, ...]
    on_cpu: bool
    slowdown: float | None

    @property
    def step_ns(self) -> int:
        """The time of the step."""
        return sum(part.ns for part in self.parts)


class WaterfallPanel(Panel[WaterfallData]):
    """Each bar begins where the one above ends; the last row is the step."""

    NAME = "waterfall"

    def pick(self, view: View, moment: Moment) -> WaterfallData | Empty:
        window = view.window
        if window is None:
            return Empty(TITLE, view.waiting)
        report = window.report
        parts = tuple(
            step_part
            for step_part in report.waterfall
            if step_part.ns or step_part.part not in GAP_CLASSES
        )
        if not sum(step_part.ns for step_part in parts):
            return Empty(TITLE, _no_waterfall(window))
        observer = report.observer
        return WaterfallData(parts, report.on_cpu, observer.ratio if observer else None)

    def wanted_rows(self, width: int) -> int | None:
        return 1 if isinstance(self._data, Empty) else len(self._data.parts) + 1

    def as_text(self, data: WaterfallData) -> list[TextLine]:
        lines: list[TextLine] = [f"{TITLE}: {duration(data.step_ns)}"]
        for part in data.parts:
            share = percent(part.ns / data.step_ns)
            lines.append((part_words(part.part), signed_duration(part.ns), f"{share} %"))
        return lines

    def draw(self, data: WaterfallData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        figures = _NAME_CELLS + _TIME_CELLS + _SHARE_CELLS + 2
        meaning = _MEANING_CELLS if width - figures - _MEANING_CELLS >= 3 * _LEAST_BAR else 0
        bar = width - figures - meaning
        if bar < _LEAST_BAR:
            bar = 0
        rows, at_ns = [], 0
        shown = _most(data.parts, max(height - 1, 1))
        for part in data.parts:
            if part in shown:
                rows.append(self._part(part, data, at_ns, bar, meaning))
            at_ns += part.ns
        total = Row().left("  the step", _NAME_CELLS, inks.strong)
        total.right(duration(data.step_ns), _TIME_CELLS, inks.strong)
        total.right("100 %", _SHARE_CELLS, inks.dim)
        rows.append(total)
        slow = data.slowdown
        note = f"the profiler made it {slow:.2f} times as long" if slow and slow > 1.05 else ""
        return Sheet(rows[:height], f"{TITLE}: {duration(data.step_ns)}", note)

    def _part(
        self, part: WaterfallPart, data: WaterfallData, at_ns: int, bar: int, meaning: int
    ) -> Row:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        hue, step_ns = inks.part(part.part), max(data.step_ns, 1)
        row = Row().add(f"{inks.mark(PART_LETTERS.get(part.part, '?'), glyphs.swatch)} ", hue)
        row.left(part_words(part.part), _NAME_CELLS - 2, inks.text)
        row.right(signed_duration(part.ns), _TIME_CELLS, inks.strong)
        row.right(_share(part.ns / step_ns), _SHARE_CELLS, inks.text)
        row.add("  ", inks.text)
        if bar:
            first_ns = min(at_ns, at_ns + part.ns)
            start = min(int(max(first_ns, 0) / step_ns * bar), bar - 1)
            piece = horizontal_bar(
                abs(part.ns) / step_ns * bar / (bar - start), bar - start, glyphs
            )
            row.add(" " * start, inks.text).add(piece, hue)
        meanings = _MEANINGS | (CPU_GAP_MEANINGS if data.on_cpu else GAP_MEANINGS)
        if meaning:
            words = "faster than the peak allows" if part.ns < 0 else meanings.get(part.part, "")
            row.left(f" {words}", meaning, inks.dim)
        return row


def _share(fraction: float) -> str:
    return f"-{percent(-fraction)} %" if fraction < 0 else f"{percent(fraction)} %"


def _most(parts: Sequence[WaterfallPart], rows: int) -> Sequence[WaterfallPart]:
    """The largest parts, as many as there are rows for."""
    return sorted(parts, key=lambda part: -abs(part.ns))[:rows]


def _no_waterfall(window: Window) -> str:
    """Why there is no step to divide."""
    report = window.report
    if not report.devices:
        return "no GPU activity in this trace: see 9 Log for what is missing"
    if any(finding.code == "graph_capture" for finding in report.health.findings):
        return report.verdict.because[0]
    if not report.steps:
        return "this trace marks no steps, so there is none to divide"
    return "no step of this trace launched an op"
