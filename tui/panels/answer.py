"""The answer: the step, its limit and its parts, what it is bound by, and what to do next."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.style import Style

from decodescope.analyzer.answer.parts import lost_by_group
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from decodescope.analyzer.vocabulary.class_colors import GROUP_COLORS, LIMIT_COLOR
from decodescope.analyzer.vocabulary.words import layers_words, straggler_text
from decodescope.tui.commands import commands_of
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import Resized
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine, wrapped
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.window_table import WindowTable, WindowTablePanel
from decodescope.tui.style.palette import horizontal_bar

_LEAST_PARTS = 3
_BAR_FROM_ROWS = 9
_LEAST_BAR_CELLS = 24
_OBSERVED_MATTERS = 1.05


class AnswerPanel(WindowTablePanel):
    """The lines that `analyze` begins with. Without room, the parts are cut first; the reasons
    beside the first one can be unfolded."""

    NAME = "answer"
    PART = "window"
    TITLE = "Where the step goes"
    COMMANDS = commands_of("answer")

    _unfolded = False
    _headline: tuple[str, ...] = ()
    _reasons: tuple[str, ...] = ()
    _advice: tuple[str, ...] = ()
    _apart = ""
    _segments: tuple[tuple[str, int, str], ...] = ()

    def contents(self, window: Window, view: View) -> WindowTable | Empty:
        report = window.report
        if not report.answer.parts:
            findings = [finding.message for finding in report.health.findings]
            return Empty("No GPU activity", "; ".join(findings) or "the trace holds no GPU events")
        lines = answer_lines(report)
        reasons = [*lines.refused, *lines.reasons]
        reasons += [lines.host] if lines.host else []
        if window.communication is not None:
            reasons.append(straggler_text(window.communication))
        if report.structure is not None and report.structure.layers:
            reasons.append(f"a step has {layers_words(report.structure)}")
        self._headline = tuple(lines.headline.split(" · "))
        self._reasons, self._advice, self._apart = tuple(reasons), lines.next, lines.apart
        segments = tuple(_segments(report.answer))
        self._segments = segments if len(segments) > 1 else ()
        ratio = report.answer.profiler_ratio
        slow = f"the profiler made it {ratio:.2f} times as long" if ratio else ""
        note = slow if ratio and ratio > _OBSERVED_MATTERS else ""
        title = self.TITLE if report.answer.step_ns is not None else "Where the time goes"
        return WindowTable(answer_table(report.answer), title, note, lines.headline)

    def as_text(self, data: WindowTable) -> list[TextLine]:
        advice = [f"→ {line}" for line in self._advice]
        apart = [f"set apart: {self._apart}"] if self._apart else []
        return [*super().as_text(data), *self._reasons, *advice, *apart]

    def wanted_rows(self, width: int) -> int | None:
        if isinstance(self._data, Empty):
            return 1
        head = len(self._headline_rows(width)) + bool(self._segments)
        return head + 1 + len(self._rows) + len(self._told(width))

    def draw(self, data: WindowTable, width: int, height: int) -> Sheet:
        rows = self._headline_rows(width)[: max(height - 1, 1)]
        if height >= _BAR_FROM_ROWS and width >= _LEAST_BAR_CELLS and self._segments:
            rows.append(self._bar(width))
        told = self._told(width)
        room = max(height - len(rows) - _LEAST_PARTS - 1, min(height - len(rows), 1))
        if len(told) > room > 0:
            told = [*told[: room - 1], self._going_on(told[room - 1], width)]
        parts = max(height - len(rows) - min(len(told), room), 0)
        lines = TableLayout().lines(self._rows, width, parts, self._brush)[:parts]
        hidden = len(self._rows) - max(len(lines) - 1, 0)
        note = f"{hidden} more part{'s' * (hidden > 1)}" if hidden > 0 else data.note
        return Sheet([*rows, *lines, *told[: max(room, 0)]], data.title, note)

    def action_fold(self) -> None:
        """Show or hide the reasons."""
        self._unfolded = not self._unfolded
        self._drawn_for = None
        self.post_message(Resized(self))

    def on_click(self) -> None:
        self.action_fold()

    def _headline_rows(self, width: int) -> list[Row]:
        inks = self._brush.inks
        rows = [Row()]
        for piece in self._headline:
            text = piece if not rows[-1].cells else f" · {piece}"
            if rows[-1].cells and rows[-1].cells + cell_len(text) > width:
                rows.append(Row())
                text = piece
            leads = piece.endswith((" a step", " in all"))
            style = inks.accent if leads else inks.strong if "limit" in piece else inks.text
            rows[-1].add(text, style)
        return rows

    def _bar(self, width: int) -> Row:
        """The limit, then the time over it of each group, in proportion, with its name behind."""
        row, inks = Row(), self._brush.inks
        total_ns = sum(ns for _, ns, _ in self._segments)
        cells = width - sum(len(name) + 3 for name, _, _ in self._segments)
        for name, ns, color in self._segments:
            filled = max(round(cells * ns / total_ns), 1)
            row.add(horizontal_bar(1.0, filled, self._brush.glyphs), inks.hue(color))
            row.add(f" {name}  ", inks.dim)
        return row

    def _told(self, width: int) -> list[Row]:
        """The bound with its reasons, the advice, and the interruptions and other steps."""
        inks = self._brush.inks
        reasons = self._reasons if self._unfolded else self._reasons[:1]
        advice = self._advice if self._unfolded else self._advice[:1]
        apart = (self._apart,) if self._apart else ()
        marked = [
            *(("", reason, inks.text) for reason in reasons),
            *(("→ ", line, inks.strong) for line in advice),
            *(("set apart: ", line, inks.dim) for line in apart),
        ]
        rows = [row for mark, text, style in marked for row in _lines(mark, text, style, width)]
        hidden = len(self._reasons) + len(self._advice) - len(reasons) - len(advice)
        if hidden and rows[-1].cells + 12 <= width:
            rows[-1].add(f"  +{hidden} enter", inks.faint)
        return rows

    def _going_on(self, row: Row, width: int) -> Row:
        """`row` with the key that shows the rest at the end of the line."""
        inks, words = self._brush.inks, "enter shows all"
        kept = max(width - len(words) - 2, 0)
        whole = Row().row(row, kept).add("… " if row.cells > kept else "  ", inks.dim)
        return whole.add(words[:width], inks.key)


def _segments(answer: Answer) -> Iterator[tuple[str, int, str]]:
    """The name, the time and the colour of the limit, and of each group's time over the limit, the
    largest first; of a step without its limit, of each group's time."""
    if answer.limit_ns:
        yield "limit", answer.limit_ns, LIMIT_COLOR
    lost_ns = lost_by_group(answer.parts)
    whole_ns = sum(lost_ns.values()) + (answer.limit_ns or 0)
    for group in sorted(lost_ns, key=lost_ns.__getitem__, reverse=True):
        if lost_ns[group] * 100 >= whole_ns > 0:
            over = " over" if group == "kernels" and answer.limit_ns else ""
            yield f"{group}{over}", lost_ns[group], GROUP_COLORS[group]


def _lines(mark: str, text: str, style: Style, width: int) -> Iterator[Row]:
    for place, piece in enumerate(wrapped(plain_line(text), max(width - cell_len(mark), 1))):
        yield Row().add(" " * cell_len(mark) if place else mark, style).add(piece, style)
