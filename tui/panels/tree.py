"""Tables in which rows are below others, which open and close."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.cells import cell_len

from decodescope.analyzer.tables.columns import Table
from decodescope.tui.panels.sheet import Brush
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Cell, Record, TableRows

_SIGNS = {None: "  ", True: "▾ ", False: "▸ "}


@dataclass(frozen=True, slots=True)
class Branch:
    """The place of a row in a tree: the key of the row `above` it, None at the top. `is_open` says
    whether the rows below it are shown, None without any."""

    key: Hashable
    above: Hashable = None
    depth: int = 0
    is_open: bool | None = None

    @property
    def lead(self) -> str:
        return "  " * self.depth + _SIGNS[self.is_open]


class TreeRows(TableRows[Record]):
    """The rows of a table, each with its branch. Sorting keeps each row below its parent."""

    def __init__(self, table: Table[Record], branches: Sequence[Branch]) -> None:
        super().__init__(table)
        self._branches = branches

    def branch(self, row: int) -> Branch:
        return self._branches[row]

    def key(self, row: int) -> Hashable:
        return self._branches[row].key

    def lead(self, row: int, brush: Brush) -> str:
        """The text before the name of a row."""
        return self._branches[row].lead

    def cells(self, row: int, brush: Brush, room: int) -> list[Cell]:
        cells, lead, named = super().cells(row, brush, room), self.lead(row, brush), self._named
        if cell_len(lead) > room // 2:
            lead = lead[-room // 2 :].rjust(1)
        name = self._drawings[named](self.table.rows[row], brush, max(room - cell_len(lead), 1))
        cells[named] = replace(name, text=lead + name.text)
        return cells

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        below: dict[Hashable, list[int]] = {}
        for row in super().order(column, down):
            below.setdefault(self._branches[row].above, []).append(row)
        ordered: list[int] = []
        pending = below.get(None, [])[::-1]
        while pending:
            row = pending.pop()
            ordered.append(row)
            pending += below.get(self._branches[row].key, [])[::-1]
        return ordered


class TreePanel(TablePanel):
    """Subclasses give rows with a `branch`, and count `_turned` to their source: the keys of the
    rows that were opened, of a tree that is `OPEN` at first those that were closed."""

    OPEN: ClassVar[bool] = False

    _turned: frozenset[Hashable] = frozenset()

    def is_open(self, key: Hashable) -> bool:
        return (key in self._turned) != self.OPEN

    def action_fold(self) -> None:
        if (branch := self._branch()) is not None and branch.is_open is not None:
            self._turn(branch)

    def action_close(self) -> None:
        if (branch := self._branch()) is None:
            return
        if branch.is_open:
            self._turn(branch)
        elif branch.above is not None:
            self._go_to_key(branch.above)
            self.moved(branch.above)

    def action_unfold(self) -> None:
        if (branch := self._branch()) is not None and branch.is_open is False:
            self._turn(branch)

    def _turn(self, branch: Branch) -> None:
        self._turned ^= {branch.key}
        self.show(self._seen)

    def _branch(self) -> Branch | None:
        """The branch of the row at the cursor, None without one."""
        branch = getattr(self._shown, "branch", None)
        return None if branch is None or not len(self._order) else branch(self._order[self._cursor])
