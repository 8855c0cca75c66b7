"""The answer: the step, its limit and its parts, what it is bound by, and what to do next."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from textual import events

from decodescope.analyzer.answer.parts import longest_of_part, lost_by_group, window_of
from decodescope.analyzer.schema.answer import Answer, AnswerPart
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import AnswerLines, answer_lines
from decodescope.analyzer.vocabulary.class_colors import GROUP_COLORS, LIMIT_COLOR
from decodescope.analyzer.vocabulary.words import layers_words, straggler_text
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import GapPick, OpPick
from decodescope.tui.model.view import PROFILER_MATTERS, View, Window
from decodescope.tui.panels.messages import Choose, PanelChanged
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine, wrapped
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.table_rows import TableRows, text_lines
from decodescope.tui.style.palette import horizontal_bar

_TITLE = "Where the step goes"
_LEAST_PARTS = 3
_BAR_FROM_ROWS = 9
_LEAST_BAR_CELLS = 24


@dataclass(frozen=True, slots=True, eq=False)
class AnswerData:
    """The parts, the lines around them, and the segments of the bar: (name, ns, colour)."""

    rows: TableRows[AnswerPart]
    title: str
    note: str
    lines: AnswerLines
    reasons: tuple[str, ...]
    segments: tuple[tuple[str, int, str], ...]


class AnswerPanel(Panel[AnswerData]):
    """The lines that `analyze` begins with. The cursor chooses a part, whose longest op or gap the
    timeline shows. Without room, the parts are cut first; the reasons beside the first one can be
    unfolded, and turned like pages where there is no room for all."""

    NAME = "answer"
    PART = "window"
    COMMANDS = commands_of("answer")

    _window: Window | None = None
    _picked: AnswerData | Empty = Empty("", "")
    _unfolded = False
    _first = _next = 0
    # The part at the cursor, the first part that is drawn, the line of its row, the parts drawn.
    _cursor = _top = _parts_line = _parts_shown = 0

    def pick(self, view: View) -> AnswerData | Empty:
        if view.window is None:
            return Empty(_TITLE, view.waiting)
        if view.window is not self._window:
            self._window, self._picked = view.window, _answer_data(view.window)
        return self._picked

    def as_text(self, data: AnswerData) -> list[TextLine]:
        table = text_lines(data.rows, self._brush)
        advice = [f"→ {line}" for line in data.lines.next]
        apart = [f"set apart: {data.lines.apart}"] if data.lines.apart else []
        return [data.lines.headline, *table, *data.reasons, *advice, *apart]

    def column_help(self) -> list[tuple[str, str]]:
        return [] if isinstance(self._picked, Empty) else self._picked.rows.column_help()

    def wanted_rows(self, width: int) -> int | None:
        inner = max(width - 2 * self.inset, 1)
        if isinstance(data := self._data, Empty):
            return len(wrapped(data.hint, inner))
        rows = len(self._headline(data, inner)) + 1 + len(data.rows) + len(self._told(data, inner))
        return rows + (rows + 1 >= _BAR_FROM_ROWS and self._bar(data, inner) is not None)

    def draw(self, data: AnswerData, width: int, height: int) -> Sheet:
        rows = self._headline(data, width)[: max(height - 1, 1)]
        if height >= _BAR_FROM_ROWS and (bar := self._bar(data, width)) is not None:
            rows.append(bar)
        told, least = self._told(data, width), min(len(data.rows), _LEAST_PARTS) + 1
        free = max(height - len(rows), 0)
        room = min(max(free if self._unfolded else free - least, 1), free)
        self._first = self._first if self._first < len(told) else 0
        self._next = self._first + room if room < len(told) - self._first else 0
        told = told[self._first :][:room]
        if self._next and not self._unfolded:
            told[-1] = self._going_on(told[-1], width)
        lines = self._part_lines(data.rows, width, free - len(told))
        self._parts_line, self._parts_shown = len(rows) + 1, max(len(lines) - 1, 0)
        hidden = len(data.rows) - self._parts_shown
        note = f"{hidden} more part{'s' * (hidden > 1)}" if hidden > 0 else data.note
        note = "w goes on" if self._unfolded and self._next else note
        return Sheet([*rows, *lines, *told], data.title, note)

    def _part_lines(self, rows: TableRows[AnswerPart], width: int, height: int) -> list[Row]:
        """The titles and the parts around the cursor, which is drawn while the panel takes keys."""
        self._cursor = min(self._cursor, len(rows) - 1)
        body = max(height - 1, 1)
        self._top = max(min(self._top, self._cursor, len(rows) - body), 0)
        self._top = max(self._top, self._cursor - body + 1)
        layout, visible = TableLayout(), range(len(rows))[self._top : self._top + body]
        lines = [
            layout.line(cells, self._brush, False, width * (self.has_focus and row == self._cursor))
            for row, cells in layout.fit(rows, visible, width, None, self._brush)
        ]
        return [layout.titles(None, True, self._brush), *lines][: max(height, 0)]

    def action_move(self, parts: int) -> None:
        if not isinstance(self._data, Empty):
            self._cursor = max(min(self._cursor + parts, len(self._data.rows) - 1), 0)
            self._redraw()

    def action_open_part(self) -> None:
        """Show the op or the gap that takes most of the part at the cursor, in the timeline. Those
        of a recording that stands in for a run are not of the run."""
        if self._window is None or isinstance(self._data, Empty) or self._recorded_on:
            return
        analysis, part = self._window.analysis, self._window.report.answer.parts[self._cursor]
        step = window_of(analysis, analysis.median_step, analysis.interruptions)
        longest = longest_of_part(analysis, analysis.structure, step, part.part)
        if longest is None:
            self.notify(f"{part.part}: nothing of the timeline is of this part alone")
            return
        kind, row = longest
        pick = OpPick(row) if kind == "op" else GapPick(row)
        self.post_message(Choose(pick, page="timeline"))

    def on_click(self, event: events.Click) -> None:
        line = event.y - (self.inset > 0) - self._parts_line
        if 0 <= line < self._parts_shown:
            self.action_move(self._top + line - self._cursor)
            if event.chain == 2:
                self.action_open_part()
        else:
            self.action_fold()

    def action_fold(self) -> None:
        """Show the reasons, then those that had no room; after the last ones, hide them."""
        self._first = self._next if self._unfolded else 0
        self._unfolded = self._first > 0 or not self._unfolded
        self._drawn_for = None
        self.post_message(PanelChanged(self))

    def _headline(self, data: AnswerData, width: int) -> list[Row]:
        inks, rows = self._brush.inks, [Row()]
        for piece in plain_line(data.lines.headline).split(" · "):
            leads = piece.endswith((" a step", " in all"))
            style = inks.accent if leads else inks.strong if "limit" in piece else inks.text
            if rows[-1].cells and rows[-1].cells + cell_len(piece) + 3 <= width:
                rows[-1].add(f" · {piece}", style)
                continue
            rows += [Row().add(line, style) for line in wrapped(piece, max(width, 1))]
        return rows[1:]

    def _bar(self, data: AnswerData, width: int) -> Row | None:
        """The limit and each group's time over it, to scale and named; None without room."""
        row, inks = Row(), self._brush.inks
        names = [f" {name}  " for name, _, _ in data.segments]
        cells = width - sum(map(len, names))
        if len(names) < 2 or cells < _LEAST_BAR_CELLS:
            return None
        times_ns = [ns for _, ns, _ in data.segments]
        filled = [max(round(cells * ns / sum(times_ns)), 1) for ns in times_ns]
        filled[filled.index(max(filled))] += cells - sum(filled)
        for name, count, (_, _, color) in zip(names, filled, data.segments, strict=True):
            row.add(horizontal_bar(1.0, count, self._brush.glyphs), inks.hue(color))
            row.add(name, inks.dim)
        return row

    def _told(self, data: AnswerData, width: int) -> list[Row]:
        inks, lines = self._brush.inks, data.lines
        reasons = data.reasons if self._unfolded else data.reasons[:1]
        advice = lines.next if self._unfolded else lines.next[:1]
        marked = [
            *(("", reason, inks.text) for reason in reasons),
            *(("→ ", line, inks.strong) for line in advice),
            *([("set apart: ", lines.apart, inks.dim)] if lines.apart else ()),
        ]
        rows = [row for mark, text, style in marked for row in _lines(mark, text, style, width)]
        hidden = len(data.reasons) + len(lines.next) - len(reasons) - len(advice)
        if hidden:
            mark = f"  +{hidden} w"
            rows += [Row()] if rows[-1].cells + len(mark) > width else []
            rows[-1].add(mark, inks.faint)
        return rows

    def _going_on(self, row: Row, width: int) -> Row:
        """`row` with the key that shows the rest at the end of the line."""
        inks, words = self._brush.inks, "w shows all"
        kept = max(width - len(words) - 2, 0)
        whole = Row().row(row, kept).add("… " if row.cells > kept else "  ", inks.dim)
        return whole.add(words[:width], inks.key)


def _answer_data(window: Window) -> AnswerData | Empty:
    report, answer = window.report, window.report.answer
    lines = answer_lines(report, window.step)
    if not answer.parts:
        findings = [lines.headline] if answer.step_ns is not None else []
        findings += [finding.message for finding in report.health.findings]
        return Empty("No GPU activity", "; ".join(findings) or "the trace holds no GPU events")
    reasons = [*lines.refused, *lines.reasons]
    reasons += [lines.host] if lines.host else []
    if window.communication is not None:
        reasons.append(straggler_text(window.communication))
    if report.structure is not None and report.structure.layers:
        reasons.append(f"a step has {layers_words(report.structure)}")
    ratio = answer.profiler_ratio or 0.0
    note = f"the profiler made it {ratio:.2f} times as long" if ratio > PROFILER_MATTERS else ""
    title = _TITLE if answer.step_ns is not None else "Where the time goes"
    rows = TableRows(answer_table(answer, kernels=report.kernels))
    return AnswerData(rows, title, note, lines, tuple(reasons), tuple(_segments(answer)))


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
