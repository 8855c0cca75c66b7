"""The tree of ranges: their GPU time, launches and idle time, folded by layer or one by one."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from rich.style import Style

from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.report import RangeKind
from decodescope.analyzer.tables.ranges_table import RangeLine, range_lines, table_of_lines
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import Pick, RangePick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.messages import Choose, Narrow, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Cell, Rows, TableRows
from decodescope.tui.style.palette import Inks

TITLE = "Ranges"


class RangeRows(TableRows[RangeLine]):
    """The rows of an unfolded tree; a key is a path. Sorting keeps each row below its parent."""

    def __init__(
        self, lines: Sequence[RangeLine], closed: frozenset[str], window: Window, within: str | None
    ) -> None:
        steps = window.report.main_steps.steps or None
        table = table_of_lines(lines, window.report, folded=True, steps=steps)
        super().__init__(replace(table, tone=None, depth=None))
        hidden: set[str] = set()
        self.lines: list[RangeLine] = []
        for line in lines:
            if line.above in hidden or line.above in closed:
                hidden.add(line.range.path)
            else:
                self.lines.append(line)
        self.table = replace(self.table, rows=self.lines)
        self._folded, self._within = closed, within

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        return [self._name(row, inks, room), *super().cells(row, inks, room)[1:]]

    def _name(self, row: int, inks: Inks, room: int) -> Cell:
        line = self.lines[row]
        node, sign = line.range, " "
        if line.children:
            sign = "▸" if node.path in self._folded else "▾"
        many = f" \u00d7{len(line.each_ns)}" if len(line.each_ns) > 1 else ""
        indent = "  " * min(line.depth, room // 4)
        label = f"~{line.label}" if node.kind == "inferred" and inks.letters else line.label
        label = cut_middle(label, max(room - len(indent) - 2 - len(many), 1))
        style = _style(node.kind, inks)
        if self._within == node.path:
            style = inks.accent
        return Cell(f"{indent}{sign} {label}{many}", style)

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        below: dict[str | None, list[int]] = {}
        for row in super().order(column, down):
            below.setdefault(self.lines[row].above, []).append(row)
        ordered: list[int] = []
        pending = below.get(None, [])[::-1]
        while pending:
            row = pending.pop()
            ordered.append(row)
            pending += below.get(self.lines[row].range.path, [])[::-1]
        return ordered


class RangeTreePanel(TablePanel):
    """Every range that put work on a GPU; operators where the host opened none."""

    NAME = "range_tree"
    COMMANDS = commands_of("rows", "range_tree")

    _folded: frozenset[str] = frozenset()
    _by_layer = True
    _seen: tuple[View, Moment]

    def source(self, view: View, moment: Moment) -> object:
        self._seen = (view, moment)
        return view.window, view.waiting, view.selection.within, self._folded, self._by_layer

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        window = view.window
        if window is None:
            return Empty(TITLE, view.waiting)
        if not window.report.devices:
            return Empty(TITLE, "no GPU activity in this trace: see 9 Log for what is missing")
        lines = range_lines(window.report, by_layer=self._by_layer)
        if not lines:
            return Empty(TITLE, "no range and no operator of the host launched this window's work")
        within = view.selection.within
        rows = RangeRows(lines, self._folded, window, within)
        per_step = " per step" if window.report.main_steps.steps else ""
        self._title = f"{TITLE}{per_step}"
        if all(line.range.kind == "operator" for line in rows.lines if line.depth == 0):
            self._title = f"Operators{per_step} (the host opened no range)"
        if any(line.range.kind == "inferred" for line in rows.lines):
            how = "where ~" if self._brush.inks.letters else "where slanted"
            self._title += f", inferred from kernel names {how}"
        self._title += f": narrowed to {within}" if within is not None else ""
        of_layers = "layers as one row" if self._by_layer else "every range"
        self._note = f"{of_layers} · {window.steps_words}"
        return rows

    def pick_of(self, key: Hashable) -> Pick | None:
        return RangePick(str(key))

    def key_of(self, pick: Pick | None) -> Hashable:
        return pick.path if isinstance(pick, RangePick) else None

    def opened(self, key: Hashable) -> None:
        """Narrow every page to the range, or widen again."""
        within = self._seen[0].selection.within
        self.post_message(Narrow(None if within == key else str(key)))

    def action_fold(self) -> None:
        if (line := self._line_at()) is not None and line.children:
            self._fold(self._folded ^ {line.range.path})

    def action_close(self) -> None:
        line = self._line_at()
        if line is None:
            return
        if line.children and line.range.path not in self._folded:
            self._fold(self._folded | {line.range.path})
        elif line.above is not None:
            self._go_to_key(line.above)
            self.post_message(Choose(RangePick(line.above)))

    def action_unfold(self) -> None:
        if (line := self._line_at()) is not None:
            self._fold(self._folded - {line.range.path})

    def action_layers(self) -> None:
        self._by_layer = not self._by_layer
        self.show(*self._seen)

    def action_gaps(self) -> None:
        if (line := self._line_at()) is not None:
            self.post_message(Narrow(line.range.path))
            self.post_message(Turn("gaps"))

    def _fold(self, closed: frozenset[str]) -> None:
        self._folded = closed
        self.show(*self._seen)

    def _line_at(self) -> RangeLine | None:
        rows = self._shown
        if not isinstance(rows, RangeRows) or not len(self._order):
            return None
        return rows.lines[self._order[self._cursor]]


def _style(kind: RangeKind, inks: Inks) -> Style:
    """Operators are dim, and what was inferred is slanted."""
    if kind == "operator":
        return inks.dim
    return inks.text + Style(italic=True) if kind == "inferred" else inks.text
