"""The details pane: everything about what is selected; long names are folded to two lines."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells
from rich.style import Style

from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import Selection
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, wrapped

if TYPE_CHECKING:
    from decodescope.tui.model.kernel_details import DetailLine

# A longer label has the rest of its own line.
_MOST_LABEL_CELLS = 16


@dataclass(frozen=True, slots=True)
class DetailsData:
    lines: tuple["DetailLine", ...]
    title: str


class DetailsPanel(Panel[DetailsData]):
    """Wraps every line and scrolls; a copy of the page has names as a whole."""

    NAME = "details"
    COMMANDS = commands_of("details")

    _first = 0
    _described: tuple[Selection, Window | None, str] | None = None
    _details: DetailsData | Empty = Empty("Details", "")

    def pick(self, view: View) -> DetailsData | Empty:
        described = (view.selection, view.window, view.page)
        if described != self._described:
            self._described, self._first = described, 0
            self._details = Empty("Details", view.waiting)
            if view.window is not None and view.selection.selects:
                from decodescope.tui.model.describe import describe

                title, lines = describe(view.selection, view.window)
                self._details = DetailsData(tuple(line for line in lines if line.text), title)
        return self._details

    def draw(self, data: DetailsData, width: int, height: int) -> Sheet:
        most = min(_MOST_LABEL_CELLS, width // 3)
        fitting = [cells for line in data.lines if (cells := cell_len(line.label)) < most]
        labels = max(fitting, default=0) + 1
        rows = [row for line in data.lines for row in self._wrapped(line, labels, width)]
        hidden = max(len(rows) - height, 0)
        self._first = min(self._first, hidden)
        note = f"{self._first + 1}\u2013{self._first + height} of {len(rows)}" if hidden else ""
        return Sheet(rows[self._first : self._first + height], data.title, note)

    def as_text(self, data: DetailsData) -> list[str]:
        labels = max((cell_len(line.label) for line in data.lines), default=0)
        return [f"{line.label:<{labels}} {line.text}".rstrip() for line in data.lines]

    def action_scroll(self, lines: int) -> None:
        self._first = max(self._first + lines, 0)
        self._redraw()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)

    def _wrapped(self, line: "DetailLine", labels: int, width: int) -> list[Row]:
        inks = self._brush.inks
        style: Style = getattr(inks, line.tone)
        start = max(labels, cell_len(line.label) + 1) if line.label else 0
        if start > width // 2:
            start = 0
        cells, text = max(width - start, 1), plain_line(line.text)
        pieces = wrapped(text, cells)
        if line.fold:
            # One cell of the first line may be left over, before a wide character.
            pieces = chop_cells(cut_middle(text, 2 * cells - 1), cells) or [""]
        if not start and line.label:
            return [
                Row().left(line.label, width, inks.dim),
                *(Row().add(piece, style) for piece in pieces),
            ]
        rows = [Row().to(start).add(piece, style) for piece in pieces]
        if line.label:
            rows[0] = Row().add(line.label, inks.dim).to(start).add(pieces[0], style)
        return rows
