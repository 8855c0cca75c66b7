"""The base of all panels: lines are computed once per change, and only changed lines repaint."""

from collections.abc import Sequence, Set
from typing import Any, ClassVar, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import Command, bindings
from decodescope.tui.model.view import Part, View
from decodescope.tui.panels.sheet import Brush, Empty, Frame, Row, Sheet, TextLine, wrapped

Data = TypeVar("Data")
_GREYED, _BRIGHT = Style(dim=True), Style(dim=False)


class Panel(Widget, Generic[Data], can_focus=False):
    """Shows a part of the app's `View`. Subclasses implement `pick` and `draw`.

    `NAME` is its place in the layout, its id, and its table in a keymap. `FRAMES` are the kinds of
    frame it is drawn in. `PART`: what a starting run has to report for it; until then it may show a
    recording, dim and marked, and so keeps nothing of what it shows. `COMMANDS` are its keys, named
    after `scope` in a keymap; a panel that has some takes the focus.
    """

    NAME: ClassVar[str]
    FRAMES: ClassVar[tuple[Frame, ...]] = ("box", "rule")
    PART: ClassVar[Part | None] = None
    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    scope: ClassVar[str] = ""
    ALLOW_SELECT = False
    # Of other widgets a new size asks for a second layout, and a paint after it: nothing scrolls.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    def __init_subclass__(cls, **options: Any) -> None:
        if "COMMANDS" in vars(cls):
            cls.scope = getattr(cls, "NAME", "table")
            cls.BINDINGS = bindings(cls.COMMANDS, cls.scope)
            options.setdefault("can_focus", bool(cls.COMMANDS))
        super().__init_subclass__(**options)

    def __init__(self, brush: Brush, view: View) -> None:
        super().__init__(id=self.NAME)
        self._brush = brush
        self._recorded_on = ""
        self._seen = view
        self._strips: list[Strip] = []
        self._drawn_for: tuple[int, int] | None = None
        self._data = self.pick(view)

    def pick(self, view: View) -> Data | Empty:
        """The part of `view` to draw. Figures are picked, never computed."""
        raise NotImplementedError

    def draw(self, data: Data, width: int, height: int) -> Sheet:
        """The panel's content for `width` x `height` cells inside the frame."""
        raise NotImplementedError

    def forget_typed(self) -> bool:
        """Drop a search and a filter; False if there is none."""
        return False

    def as_text(self, data: Data) -> Sequence[TextLine]:
        """`data` as lines for the clipboard; none by default."""
        return []

    def wanted_rows(self, width: int) -> int | None:
        """The rows that it could fill at this width; None leaves the layout to the page."""
        return None

    def show(self, view: View) -> None:
        """Show `view`; does nothing if the picked data did not change."""
        self._seen = view
        data = self.pick(view)
        if data != self._data or view.recorded_on != self._recorded_on:
            self._data, self._recorded_on = data, view.recorded_on
            self._redraw()

    @property
    def keys_now(self) -> tuple[Command, ...]:
        """Its commands that do something now, for the footer."""
        idle = self.idle_actions()
        return tuple(command for command in self.COMMANDS if command.action not in idle)

    def idle_actions(self) -> Set[str]:
        """The actions of its commands that do nothing now, which the footer leaves out."""
        empty = isinstance(self._data, Empty)
        return {command.action for command in self.COMMANDS} if empty else frozenset()

    def column_help(self) -> list[tuple[str, str]]:
        """The titles of the columns of its table, if it has one, with what they mean."""
        return []

    def use(self, brush: Brush) -> None:
        """Draw with other styles, glyphs or another frame from now on."""
        if brush != self._brush:
            self._brush = brush
            self._redraw()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Mark the title, or no longer. The events of the focus come here before it is set."""
        super().watch_has_focus(has_focus)
        self._redraw()

    @property
    def inset(self) -> int:
        """The cells of the frame on each side."""
        return 2 if self._brush.frame == "box" else 1

    def render_line(self, y: int) -> Strip:
        if self._drawn_for != (self.size.width, self.size.height):
            self._strips = self._lines()
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._brush.inks.base)

    def _redraw(self) -> None:
        if self._drawn_for != (self.size.width, self.size.height):
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
        if self._brush.frame not in self.FRAMES:
            rows = self._unframed(width, height)
        elif self._brush.frame == "box":
            rows = self._boxed(width, height)
        else:
            rows = self._ruled(width, height)
        rows += [Row() for _ in range(height - len(rows))]
        base = self._brush.inks.base + (_GREYED if self._recorded_on else Style.null())
        return [row.strip(width, base) for row in rows[:height]]

    def _sheet(self, width: int, height: int) -> Sheet:
        if isinstance(self._data, Empty):
            lines = wrapped(self._data.hint, max(width, 1))
            rows = [Row().add(line, self._brush.inks.faint) for line in lines]
            return Sheet(rows, self._data.title, self._data.note)
        return self.draw(self._data, width, height)

    def _unframed(self, width: int, height: int) -> list[Row]:
        start = min(cell_len(self._mark(width * 3 // 5)), width)
        rows = self._sheet(width - start, height).rows
        if start:
            mark = self._brush.inks.chip(self._brush.inks.warn) + _BRIGHT
            heads = [Row().add(self._mark(start), mark), *(Row() for _ in rows[1:])]
            rows = [
                head.to(start).row(row, width - start)
                for head, row in zip(heads, rows, strict=True)
            ]
        return rows

    def _mark(self, room: int) -> str:
        """The mark of figures that are not of this run, in as many words as there is room for."""
        if not self._recorded_on:
            return ""
        short = f" recorded on {self._recorded_on} "
        part = "figures" if self.PART == "figures" else "window"
        long = f"{short.rstrip()}: shown until this run's first {part} "
        return long if cell_len(long) <= room else short

    def _ruled(self, width: int, height: int) -> list[Row]:
        inner = max(width - 2, 0)
        sheet = self._sheet(inner, max(height - 1, 0))
        head = Row().add(" ", self._brush.inks.text)
        self._head(head, sheet, width - 1)
        body = [Row().to(1).row(row, inner) for row in sheet.rows[: max(height - 1, 0)]]
        return [head, *body]

    def _boxed(self, width: int, height: int) -> list[Row]:
        border = self._brush.inks.border
        inner_width, inner_height = max(width - 4, 0), max(height - 2, 0)
        sheet = self._sheet(inner_width, inner_height)
        head = Row().add("╭─", border)
        self._head(head, sheet, width - 2)
        rows = [head.add("─╮", border)]
        for index in range(inner_height):
            row = Row().add("│ ", border)
            if index < len(sheet.rows):
                row.row(sheet.rows[index], inner_width)
            rows.append(row.to(width - 2).add(" │", border))
        rows.append(Row().add("╰" + "─" * max(width - 2, 0) + "╯", border))
        return rows

    def _head(self, head: Row, sheet: Sheet, end: int) -> None:
        inks = self._brush.inks
        room = end - head.cells
        title = plain_line(f" {sheet.title} ") if sheet.title else ""
        if self._brush.frame == "rule":
            title = title.lstrip()
        if cell_len(title) > room:
            title = f"{set_cell_size(title, room - 2)}… " if room > 2 else " " * max(room, 0)
        space = room - cell_len(title) - 4
        note = plain_line(self._mark(space).strip() or sheet.note)
        # Its first parts are those that count.
        while cell_len(note) > space and " · " in note:
            note = note.rpartition(" · ")[0]
        if cell_len(note) > space:
            note = f"{set_cell_size(note, space - 1)}…" if space >= 14 else ""
        note = f" {note} " if note else ""
        head.add(title, inks.focused if self.has_focus else inks.title)
        head.add("─" * max(end - head.cells - cell_len(note), 0), inks.border)
        head.add(note, inks.warn + _BRIGHT if self._recorded_on else inks.dim)
