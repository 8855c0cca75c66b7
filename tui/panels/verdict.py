"""The answer: what the decode step is bound by, and why."""

from dataclasses import dataclass

from decodescope.analyzer.plain import plain_line
from decodescope.analyzer.views.words import bound_words
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel, Row, Sheet
from decodescope.tui.panels.text import wrapped

_BAD = ("launch", "communication")


@dataclass(frozen=True, slots=True)
class VerdictData:
    """`label` is "launch-bound", …; it is empty before the first window, and `reason` says why.
    `advice` is what to do next."""

    label: str
    reason: str
    bad: bool = False
    advice: str = ""


class VerdictPanel(Panel[VerdictData]):
    """The verdict of the last window in one line, or two."""

    NAME = "verdict"
    FRAMES = ()

    def pick(self, view: View, moment: Moment) -> VerdictData:
        if view.window is None:
            return VerdictData("", view.waiting)
        report = view.window.report
        if report.health.status == "no_gpu_activity":
            found = "; ".join(finding.message for finding in report.health.findings)
            return VerdictData("no GPU activity", found or "the trace holds no GPU events", True)
        bound, because = report.verdict.bound, "; ".join(report.verdict.because)
        return VerdictData(
            bound_words(bound), because, bound in _BAD, "; ".join(report.verdict.next)
        )

    def as_text(self, data: VerdictData) -> list[str]:
        advice = [f"next         {data.advice}"] if data.advice else []
        return [f"verdict      {data.label} {data.reason}".rstrip(), *advice]

    def draw(self, data: VerdictData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        if data.label:
            row.add(f" {data.label} ", inks.chip(inks.warn if data.bad else inks.good))
            row.add(" ", inks.text)
        style, room = inks.text if data.label else inks.dim, max(width - row.cells - 1, 0)
        if height < 2:
            return Sheet([row.left(data.reason, room, style)])
        if data.advice:
            below = Row().to(row.cells).left(f"next: {data.advice}", room, style)
            return Sheet([row.left(data.reason, room, style), below])
        first, *rest = wrapped(plain_line(data.reason), max(room, 1))
        below = Row().to(row.cells).left(" ".join(rest), room, style)
        return Sheet([row.add(first, style), below])
