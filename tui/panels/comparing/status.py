"""The state of the comparison, and what its result is of; of merged ranks, which one the others
wait for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_table import summary_of
from decodescope.analyzer.vocabulary.words import straggler_text
from decodescope.tui.model.comparing import ComparisonState
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet, wrapped
from decodescope.tui.style.palette import horizontal_bar

_BAR_CELLS = 20


@dataclass(frozen=True, slots=True)
class Line:
    """A text, and before it a bar of the `share` that is done."""

    text: str
    tone: Literal["strong", "text", "dim", "warn", "bad"] = "text"
    share: float | None = None


class ComparisonStatusPanel(Panel[tuple[Line, ...]]):
    """Progress while it runs, then what was compared and what limits it."""

    NAME = "ab_status"
    FRAMES = ()

    _about: tuple[object, Sequence[Line]] = (None, ())

    def pick(self, view: View) -> tuple[Line, ...]:
        state = view.comparison
        if state.result is not self._about[0]:
            self._about = (state.result, _about(state))
        return (*_progress(state), *_waiting(view.window), *self._about[1])

    def wanted_rows(self, width: int) -> int:
        data = self._data
        assert isinstance(data, tuple)
        return sum(len(self._wrapped(line, width)) for line in data)

    def as_text(self, data: tuple[Line, ...]) -> list[str]:
        return [line.text for line in data]

    def draw(self, data: tuple[Line, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        rows = []
        for line in data:
            for number, text in enumerate(self._wrapped(line, width)):
                row = Row().add(" ", inks.text)
                if line.share is not None and number == 0:
                    bar = horizontal_bar(line.share, _bar_cells(width), self._brush.glyphs)
                    row.add(bar, inks.accent).add(" ", inks.text)
                rows.append(row.add(text, getattr(inks, line.tone)))
        if len(rows) > height > 0:
            last = rows[height - 1]
            rows[height - 1] = Row().row(last, min(last.cells, width - 2)).add(" …", inks.faint)
        return Sheet(rows)

    def _wrapped(self, line: Line, width: int) -> list[str]:
        room = max(width - 2 - (_bar_cells(width) + 1 if line.share is not None else 0), 1)
        text = plain_line(line.text)
        return [text] if cell_len(text) <= room else wrapped(text, room)


def _bar_cells(width: int) -> int:
    return min(_BAR_CELLS, width // 8)


def _progress(state: ComparisonState) -> list[Line]:
    lines = []
    if state.phase == "reading":
        lines.append(Line("reading and analysing the files…", "strong"))
    if state.measuring and state.config is not None:
        lines.append(_doing(state))
    if state.worker_paused:
        lines.append(Line("the live worker is paused meanwhile, and goes on afterwards", "dim"))
    if state.phase == "cancelled":
        kept = "its complete rounds are shown" if state.result else "no round was complete"
        lines.append(Line(f"cancelled: {kept}", "warn"))
    if state.phase == "failed":
        lines.append(Line(state.error, "bad"))
        if "memory" in state.error.lower():
            words = "the worker keeps its memory while it is paused: E ends it, then c tries again"
            lines.append(Line(words, "warn"))
    return lines


def _doing(state: ComparisonState) -> Line:
    assert state.config is not None
    runs = state.config.rounds * len(state.config.variants)
    share = min(len(state.runs) / runs, 1.0) if runs else 0.0
    if state.phase == "cancelling":
        return Line("cancelling: the run in progress ends…", "warn", share)
    if state.progress is None:
        return Line("starting", "strong", share)
    return Line(state.progress.describe(), "strong", share)


def _waiting(window: Window | None) -> list[Line]:
    if window is None or window.communication is None:
        return []
    communication = window.communication
    lines = [Line(straggler_text(communication), "strong" if communication.straggler else "text")]
    if window.ranks is not None:
        lines += [Line(f"note: {finding.message}", "warn") for finding in window.ranks.findings]
    if communication.clock == "durations":
        lines.append(Line("waits are found from durations: the clocks do not agree", "dim"))
    return lines


def _about(state: ComparisonState) -> list[Line]:
    if state.result is None:
        return []
    summary = summary_of(state.result)
    title = " · ".join(filter(None, (summary.title, summary.weights_note, state.origin)))
    # Where there is no room for all lines, the answer is needed most.
    answer = [Line(line, "dim") for line in summary.answer]
    notes = [Line(f"note: {finding.message}", "warn") for finding in summary.findings]
    return [Line(title, "strong"), *answer, *notes, *(Line(fact, "dim") for fact in summary.facts)]
