"""The answer: what the decode step is bound by, why, and what to do next."""

from dataclasses import dataclass, replace
from typing import ClassVar

from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from decodescope.analyzer.vocabulary.words import (
    bound_words,
    cost_words,
    layers_words,
    straggler_text,
)
from decodescope.tui.commands import commands_of
from decodescope.tui.model.view import Moment, Part, View
from decodescope.tui.panels.messages import Resized
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet, wrapped

_BAD = ("host", "communication", "copies")


@dataclass(frozen=True, slots=True)
class VerdictData:
    """`label` is "host-bound", …; it is empty before the first window, and `reasons` say why.
    `advice` is what to do next."""

    label: str
    reasons: tuple[str, ...]
    bad: bool = False
    advice: tuple[str, ...] = ()


class VerdictPanel(Panel[VerdictData]):
    """The verdict as a headline with its first advice; the other lines can be unfolded."""

    NAME = "verdict"
    FRAMES = ()
    PART: ClassVar[Part | None] = "window"
    COMMANDS = commands_of("verdict")

    _unfolded = False

    def pick(self, view: View, moment: Moment) -> VerdictData:
        if view.window is None:
            return VerdictData("", (view.waiting,))
        report = view.window.report
        if report.health.status == "no_gpu_activity":
            messages = tuple(finding.message for finding in report.health.findings)
            return VerdictData(
                "no GPU activity", messages or ("the trace holds no GPU events",), True
            )
        answer, lines = report.answer, answer_lines(report)
        reasons = [*lines.refused, *answer.because]
        if view.window.communication is not None:
            reasons.append(straggler_text(view.window.communication))
        if report.structure is not None and report.structure.layers:
            reasons.append(f"a step has {layers_words(report.structure)}")
        if lines.apart:
            reasons.append(f"set apart: {lines.apart}")
        is_bad = answer.bound in _BAD
        return VerdictData(bound_words(answer.bound), tuple(reasons), is_bad, answer.next)

    def as_text(self, data: VerdictData) -> list[str]:
        advice = [f"next         {line}" for line in data.advice]
        return [f"verdict      {data.label} {'; '.join(data.reasons)}".rstrip(), *advice]

    def wanted_rows(self, width: int) -> int:
        return len(self._rows(width - self.mark_cells(width)))

    def draw(self, data: VerdictData, width: int, height: int) -> Sheet:
        rows = self._rows(width)
        if len(rows) > height > 0:
            rows = [*rows[: height - 1], self._going_on(rows[height - 1], "enter shows all", width)]
        return Sheet(rows)

    def _going_on(self, row: Row, words: str, width: int) -> Row:
        """`row` with `words` at the end of the line, cut if they need its room."""
        inks = self._brush.inks
        kept = max(width - len(words) - 2, 0)
        whole = Row().row(row, kept).add("… " if row.cells > kept else "  ", inks.dim)
        return whole.add(words[:width], inks.key)

    def action_fold(self) -> None:
        self._unfolded = not self._unfolded
        self._drawn_for = None
        self.post_message(Resized(self))

    def on_click(self) -> None:
        self.action_fold()

    def _rows(self, width: int) -> list[Row]:
        data, inks = self._data, self._brush.inks
        assert isinstance(data, VerdictData)
        head = Row().add(" ", inks.text)
        if data.label:
            chip = inks.chip(inks.warn if data.bad else inks.good)
            head.add(f" {data.label} ", inks.strong if self._recorded_on else chip)
            head.add(" ", inks.text)
        start = head.cells
        reasons = data.reasons if self._unfolded else data.reasons[:1]
        advice = data.advice if self._unfolded else data.advice[:1]
        hidden = len(data.reasons) + len(data.advice) - len(reasons) - len(advice)
        rows: list[Row] = []
        lines = [(reason, "") for reason in reasons] + [(line, "next: ") for line in advice]
        for text, before in lines:
            room = max(width - start - len(before) - 1, 1)
            for place, piece in enumerate(wrapped(plain_line(text), room)):
                row = head if not rows else Row().to(start)
                row.add(before if place == 0 else " " * len(before), inks.good)
                rows.append(row.add(piece, inks.text if data.label else inks.dim))
        rows = rows or [head]
        if hidden and rows[-1].cells + 12 <= width:
            rows[-1].add(f"  +{hidden} enter", inks.faint)
        return rows


class FullVerdictPanel(VerdictPanel):
    """The verdict, always unfolded, and the work that a step has."""

    NAME = "verdict_full"
    PART = None
    COMMANDS = commands_of("verdict_full")

    _unfolded = True
    _first = 0

    def pick(self, view: View, moment: Moment) -> VerdictData:
        data = super().pick(view, moment)
        cost = None if view.window is None else view.window.report.step_cost
        return data if cost is None else replace(data, reasons=(*data.reasons, cost_words(cost)))

    def draw(self, data: VerdictData, width: int, height: int) -> Sheet:
        rows = self._rows(width)
        self._first = max(min(self._first, len(rows) - height), 0)
        shown = rows[self._first : self._first + height]
        below = len(rows) - self._first - height
        if below > 0 and len(shown) > 1:
            shown[-1] = self._going_on(shown[-1], f"{below} more: tab, then down", width)
        return Sheet(shown)

    def on_click(self) -> None:
        """Nothing: it is always unfolded."""

    def action_scroll(self, lines: int) -> None:
        self._first += lines
        self._redraw()
