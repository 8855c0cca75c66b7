"""The tree of ranges: their GPU time, launches and idle time, folded by layer or one by one."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from rich.style import Style

from decodescope.analyzer.schema.report import RangeKind
from decodescope.analyzer.tables.ranges_table import RangeLine, range_lines, table_of_lines
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import Pick, RangePick
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import Narrow
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table_rows import Cell, Rows
from decodescope.tui.panels.tree import Branch, TreePanel, TreeRows
from decodescope.tui.style.palette import Inks

TITLE = "Ranges"


class RangeRows(TreeRows[RangeLine]):
    """The rows of a tree; a key is a path."""

    def __init__(
        self,
        lines: Sequence[RangeLine],
        is_open: Callable[[str], bool],
        window: Window,
        within: str | None,
    ) -> None:
        branches: list[Branch] = []
        hidden: set[str | None] = set()
        self.lines: list[RangeLine] = []
        for line in lines:
            path = line.range.path
            opened = is_open(path) if line.children else None
            if not opened or line.above in hidden:
                hidden.add(path)
            if line.above not in hidden:
                self.lines.append(line)
                branches.append(Branch(path, line.above, line.depth, opened))
        steps = window.report.main_steps.steps or None
        table = table_of_lines(self.lines, window.report, folded=True, steps=steps)
        super().__init__(replace(table, tone=None), branches)
        self._within = within

    def lead(self, row: int, brush: Brush) -> str:
        inferred = brush.inks.letters and self.lines[row].range.kind == "inferred"
        return super().lead(row, brush) + "~" * inferred

    def cells(self, row: int, brush: Brush, room: int) -> list[Cell]:
        name, *others = super().cells(row, brush, room)
        node, inks = self.lines[row].range, brush.inks
        style = inks.accent if self._within == node.path else _style(node.kind, inks)
        return [replace(name, style=style), *others]


class RangeTreePanel(TreePanel):
    """Every range that put work on a GPU; operators where the host opened none."""

    NAME = "range_tree"
    COMMANDS = commands_of("rows", "tree", "range_tree")
    SOURCE = ("window", "waiting", "selection.within", "_turned", "_by_layer")
    OPEN = True

    _by_layer = True

    def rows(self, view: View) -> Rows | Empty:
        window = view.window
        if window is None:
            return Empty(TITLE, view.waiting)
        if not window.report.devices:
            return Empty(TITLE, "no GPU activity in this trace: see 9 Log for what is missing")
        lines = range_lines(window.report, by_layer=self._by_layer)
        if not lines:
            return Empty(TITLE, "no range and no operator of the host launched this window's work")
        within = view.selection.within
        rows = RangeRows(lines, self.is_open, window, within)
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
        within = self._seen.selection.within
        self.post_message(Narrow(None if within == key else str(key)))

    def action_layers(self) -> None:
        self._by_layer = not self._by_layer
        self.show(self._seen)

    def action_gaps(self) -> None:
        if (branch := self._branch()) is not None:
            self.post_message(Narrow(str(branch.key), page="gaps"))


def _style(kind: RangeKind, inks: Inks) -> Style:
    if kind == "operator":
        return inks.dim
    return inks.text + Style(italic=True) if kind == "inferred" else inks.text
