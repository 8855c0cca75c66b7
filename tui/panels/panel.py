"""The base of all panels: lines are computed once per change and only changed lines repaint."""

from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from decodescope.tui.panels.layout import Frame
from decodescope.tui.style.glyphs import Glyphs
from decodescope.tui.style.palette import Inks

Data = TypeVar("Data")


@dataclass(frozen=True, slots=True)
class Brush:
    """What panels draw with: styles, glyphs and the kind of frame."""

    inks: Inks
    glyphs: Glyphs
    unicode: bool
    frame: Frame = "box"


class Row:
    """One line of a panel, built from left to right; columns count terminal cells."""

    __slots__ = ("cells", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.cells = 0

    def add(self, text: str, style: Style) -> Self:
        """Append `text`."""
        if text:
            self.segments.append(Segment(text, style))
            self.cells += cell_len(text)
        return self

    def to(self, column: int) -> Self:
        """Fill with spaces up to `column`."""
        if column > self.cells:
            self.add(" " * (column - self.cells), Style.null())
        return self

    def left(self, text: str, cells: int, style: Style) -> Self:
        """Append `text` cut or filled to exactly `cells`."""
        if cells > 0:
            if cell_len(text) > cells:
                text = set_cell_size(text, cells - 1) + "…"
            self.add(set_cell_size(text, cells), style)
        return self

    def right(self, text: str, cells: int, style: Style) -> Self:
        """Append `text` right-aligned in `cells`."""
        if cells > 0:
            self.left(text.rjust(cells) if cell_len(text) <= cells else text, cells, style)
        return self

    def strip(self, width: int, style: Style) -> Strip:
        """The row cut or filled to exactly `width` cells, drawn over `style`."""
        return Strip(self.segments, self.cells).adjust_cell_length(width).apply_style(style)


@dataclass(slots=True)
class Sheet:
    """A drawn panel: its title, a note at the right end of the frame, and its rows."""

    title: str
    note: str
    rows: list[Row]
    note_style: Style | None = None


class Panel(Widget, Generic[Data], can_focus=False):
    """Draws one piece of immutable data. Subclasses implement `draw`."""

    ALLOW_SELECT = False
    FRAMED = True

    def __init__(self, name: str, data: Data, brush: Brush) -> None:
        super().__init__(id=name)
        self._data = data
        self._brush = brush
        self._strips: list[Strip] = []
        self._drawn_for: tuple[int, int] | None = None

    @property
    def data(self) -> Data:
        """What the panel shows."""
        return self._data

    def show(self, data: Data) -> None:
        """Show `data`; nothing happens when it is what is shown already."""
        if data != self._data:
            self._data = data
            self._redraw()

    def use(self, brush: Brush) -> None:
        """Draw with other styles, glyphs or another frame from now on."""
        if brush != self._brush:
            self._brush = brush
            self._redraw()

    def draw(self, width: int, height: int) -> Sheet:
        """The panel's content for `width` x `height` cells inside the frame."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """The cached line `y`."""
        if self._drawn_for != (self.size.width, self.size.height):
            self._strips = self._lines()
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._brush.inks.base)

    def _redraw(self) -> None:
        if self._drawn_for is None or self._drawn_for != (self.size.width, self.size.height):
            self._drawn_for = None
            self.refresh()
            return
        old = self._strips
        self._strips = self._lines()
        width = self.size.width
        changed = [
            Region(0, y, width, 1) for y, strip in enumerate(self._strips) if strip != old[y]
        ]
        if changed:
            self.refresh(*changed)

    def _lines(self) -> list[Strip]:
        width, height = self.size.width, self.size.height
        self._drawn_for = (width, height)
        if width < 1 or height < 1:
            return []
        if not self.FRAMED:
            rows = list(self.draw(width, height).rows)
        elif self._brush.frame == "box":
            rows = self._boxed(width, height)
        else:
            rows = self._ruled(width, height)
        rows += [Row() for _ in range(height - len(rows))]
        return [row.strip(width, self._brush.inks.base) for row in rows[:height]]

    def _ruled(self, width: int, height: int) -> list[Row]:
        inks = self._brush.inks
        inner = max(width - 2, 0)
        sheet = self.draw(inner, max(height - 1, 0))
        head = Row().add(" ", inks.text)
        self._head(head, sheet, "─", width - 1)
        body = [_indented(row, inner) for row in sheet.rows[: max(height - 1, 0)]]
        return [head, *body]

    def _boxed(self, width: int, height: int) -> list[Row]:
        inks = self._brush.inks
        inner_width, inner_height = max(width - 4, 0), max(height - 2, 0)
        sheet = self.draw(inner_width, inner_height)
        head = Row().add("╭─", inks.border)
        self._head(head, sheet, "─", width - 2)
        head.add("─╮", inks.border)
        rows = [head]
        for index in range(inner_height):
            row = Row().add("│ ", inks.border)
            if index < len(sheet.rows):
                content = sheet.rows[index].strip(inner_width, Style.null())
                row.segments.extend(content)
                row.cells += inner_width
            row.to(width - 2).add(" │", inks.border)
            rows.append(row)
        rows.append(Row().add("╰" + "─" * max(width - 2, 0) + "╯", inks.border))
        return rows

    def _head(self, head: Row, sheet: Sheet, line: str, end: int) -> None:
        inks = self._brush.inks
        room = end - head.cells
        title = f" {sheet.title} " if sheet.title else ""
        if self._brush.frame == "rule":
            title = title.lstrip()
        note = f" {sheet.note} " if sheet.note else ""
        if cell_len(title) > room:
            title = set_cell_size(title, max(room, 0))
        if cell_len(title) + cell_len(note) + 2 > room:
            space = room - cell_len(title) - 4
            note = f" {set_cell_size(sheet.note, space - 1)}… " if note and space >= 14 else ""
        head.add(title, inks.title)
        head.add(line * max(end - head.cells - cell_len(note), 0), inks.border)
        head.add(note, sheet.note_style or inks.dim)


def _indented(row: Row, inner: int) -> Row:
    indented = Row().add(" ", Style.null())
    indented.segments.extend(row.strip(inner, Style.null()))
    indented.cells += inner
    return indented
