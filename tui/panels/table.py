"""The table of all pages: sorts, filters, searches and scrolls; only visible rows are formatted."""

from array import array
from collections.abc import Hashable, Sequence, Set
from operator import attrgetter
from typing import ClassVar

from textual import events

from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import Pick
from decodescope.tui.model.view import View
from decodescope.tui.panels.messages import Choose
from decodescope.tui.panels.prompt import Prompt, PromptPanel
from decodescope.tui.panels.sheet import Brush, Empty, Row, Sheet, TextLine
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.table_rows import Rows, smart_pattern, text_lines

# Terminals accept some 100 kB for the clipboard.
_MOST_COPIED = 1_000
_OF_ROWS = frozenset(command.action for command in commands_of("rows", "open"))


class TablePanel(PromptPanel[Rows]):
    """Subclasses say what to show (`rows`), the pick of a row, and what enter does. With the rows,
    they set `_title` and `_note`, which are in the frame. Rows depend on the attributes of the view
    that `SOURCE` names, and on those of the panel there, which begin with "_".

    The cursor stays on its row, by key, when rows are replaced, sorted or filtered.
    """

    COMMANDS = commands_of("rows", "open")
    SOURCE: ClassVar[tuple[str, ...]] = ("window",)

    _title = _note = ""
    _picks = False

    def __init__(self, brush: Brush, view: View) -> None:
        self._source: object = object()
        self._followed: object = object()
        self._shown: Rows | Empty = Empty("", "")
        self._order: Sequence[int] = ()
        self._cursor = self._top = self._body = 0
        self._cursor_key: Hashable = None
        self._sorted: int | None = None
        self._down = True
        self._filter = ""
        self._layout = TableLayout()
        super().__init__(brush, view)

    # What subclasses say

    def source(self, view: View) -> object:
        """The data that the rows depend on; `rows` is called again when it differs."""
        return [attrgetter(n)(self if n.startswith("_") else view) for n in self.SOURCE]

    def rows(self, view: View) -> Rows | Empty:
        """The rows, or why there are none."""
        raise NotImplementedError

    def pick_of(self, key: Hashable) -> Pick | None:
        """The pick that the cursor on a row selects, None if rows have none."""
        return None

    def key_of(self, pick: Pick | None) -> Hashable:
        """The key of the row that shows `pick`, None if no row does."""
        return None

    def moved(self, key: Hashable) -> None:
        """The cursor is on another row: select its pick, if it has one."""
        if (pick := self.pick_of(key)) is not None:
            self.post_message(Choose(pick))

    def opened(self, key: Hashable) -> None:
        """Enter was pressed on the row with this key, or it was clicked twice."""

    # Panel

    def idle_actions(self) -> Set[str]:
        return _OF_ROWS if isinstance(self._shown, Empty) else frozenset()

    def pick(self, view: View) -> Rows | Empty:
        source = self.source(view)
        if source != self._source:
            self._source = source
            self._replace(self.rows(view))
        self._picks = view.selection.pick is not None
        # A view from before the last key, whose selection the app has not heard of, moves nothing.
        if view.selection.pick != self._followed:
            self._followed = view.selection.pick
            key = self.key_of(view.selection.pick)
            if key is not None and key != self._cursor_key:
                self._go_to_key(key)
        return self._shown

    def draw(self, data: Rows, width: int, height: int) -> Sheet:
        foot = self._prompt is not None or bool(self._filter or self._search)
        self._body = max(height - 1 - foot, 1)
        self._top = max(min(self._top, self._cursor, len(self._order) - self._body), 0)
        self._top = max(self._top, self._cursor - self._body + 1)
        visible = self._order[self._top : self._top + self._body]
        layout, brush = self._layout, self._brush
        lines = layout.fit(data, visible, width, self._sorted, brush)
        rows = [layout.titles(self._sorted, self._down, brush)]
        pattern = smart_pattern(self._search) if self._search else None
        for number, (row, cells) in enumerate(lines, self._top):
            matches = pattern is not None and pattern.search(data.text(row)) is not None
            cursor_width = width if number == self._cursor else 0
            rows.append(layout.line(cells, brush, matches, cursor_width))
        if not len(self._order):
            none = "no row matches" if self._filter else "nothing to show"
            rows.append(Row().add(none, brush.inks.faint))
        if foot:
            rows = rows[: height - 1] + [Row() for _ in range(height - 1 - len(rows))]
            rows.append(self._foot())
        return Sheet(rows, self._title, self._place_note())

    def column_help(self) -> list[tuple[str, str]]:
        return self._shown.column_help() if isinstance(self._shown, Rows) else []

    def forget_typed(self) -> bool:
        typed = bool(self._filter or self._search)
        if typed:
            self._filter = self._search = ""
            self._apply()
        return typed

    def as_text(self, data: Rows) -> list[TextLine]:
        copied = self._order[:_MOST_COPIED]
        lines: list[TextLine] = [self._title, *text_lines(data, self._brush, copied)]
        if len(self._order) > _MOST_COPIED:
            lines.append(f"and {len(self._order) - _MOST_COPIED:,} more rows")
        return lines

    # Keys

    def edited(self, prompt: Prompt, key: str) -> None:
        if prompt.filters:
            self._filter = prompt.text
        else:
            self._search = prompt.text
        self._apply()

    def action_filter(self) -> None:
        self._ask(Prompt("filter: ", self._filter, filters=True))

    def action_next_match(self, step: int) -> None:
        self._seek(step, self._cursor + step)

    def action_sort(self) -> None:
        if isinstance(self._shown, Rows):
            following = 0 if self._sorted is None else self._sorted + 1
            self.sort_by(following if following < len(self._shown.columns) else None)

    def action_reverse(self) -> None:
        self._down = not self._down
        self._apply()

    def action_move(self, rows: int) -> None:
        self._go_to(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        self._go_to(self._cursor + pages * max(self._body - 1, 1))

    def action_end(self, side: int) -> None:
        self._go_to(0 if side < 0 else len(self._order) - 1)

    def action_enter(self) -> None:
        if self._cursor_key is not None:
            self.opened(self._cursor_key)

    def sort_by(self, column: int | None) -> None:
        """Sort by a column; again by the same one reverses."""
        if isinstance(self._shown, Rows):
            if column is not None and column == self._sorted:
                self._down = not self._down
            else:
                self._down = column is None or self._shown.columns[column].first == "down"
            self._sorted = column
            self._apply()

    # Mouse

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._go_to(self._cursor + 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._go_to(self._cursor - 3)

    def on_click(self, event: events.Click) -> None:
        line, x = event.y - 1, event.x - self.inset
        if line == 0:
            if (column := self._layout.column_at(x)) is not None:
                self.sort_by(column)
        elif 0 < line <= self._body:
            place = self._top + line - 1
            if place < len(self._order):
                self._go_to(place)
                if event.chain == 2:
                    self.action_enter()

    # Rows and cursor

    def _replace(self, rows: Rows | Empty) -> None:
        old = self._shown
        self._shown = rows
        if not isinstance(rows, Rows):
            self._order = ()
            return
        if not isinstance(old, Rows) or _headings(old) != _headings(rows):
            self._sorted, self._down = None, True
            self._layout.forget()
        self._arrange()

    def _arrange(self) -> None:
        """Order and filter the rows, and find the cursor's row again."""
        rows, self._followed = self._shown, object()
        if not isinstance(rows, Rows):
            return
        order = rows.order(self._sorted, self._down)
        if self._sorted is None and not self._down:
            order = order[::-1]
        if self._filter:
            kept = rows.matching(smart_pattern(self._filter))
            order = array("q", (row for row in order if row in kept))
        self._order = order
        row = rows.place(self._cursor_key) if self._cursor_key is not None else None
        if row is not None and (place := _index(order, row)) is not None:
            self._cursor = place
        self._cursor = max(min(self._cursor, len(order) - 1), 0)
        self._cursor_key = rows.key(order[self._cursor]) if len(order) else None

    def _apply(self) -> None:
        self._arrange()
        if self._prompt is not None:
            self._seek(1, self._cursor)
        self._redraw()

    def _seek(self, step: int, start: int) -> None:
        """Go to the first row from the place `start` on that matches the search."""
        if self._search and isinstance(self._shown, Rows):
            matches, count = self._shown.matching(smart_pattern(self._search)), len(self._order)
            places = ((start + number * step) % count for number in range(count))
            found = next((place for place in places if self._order[place] in matches), None)
            if found is not None:
                self._go_to(found)

    def _go_to_key(self, key: Hashable) -> None:
        rows = self._shown
        row = rows.place(key) if isinstance(rows, Rows) else None
        if row is not None and (place := _index(self._order, row)) is not None:
            self._cursor, self._cursor_key = place, key
            # Rows that are new are drawn by whoever picked them.
            if self._drawn_for is not None and self._shown is self._data:
                self._redraw()

    def _go_to(self, place: int) -> None:
        rows = self._shown
        if not isinstance(rows, Rows) or not len(self._order):
            return
        self._cursor = max(min(place, len(self._order) - 1), 0)
        key = rows.key(self._order[self._cursor])
        if key != self._cursor_key or not self._picks:
            self._cursor_key = key
            self.moved(key)
        self._redraw()

    # Drawing

    def _foot(self) -> Row:
        inks = self._brush.inks
        if self._prompt is not None:
            return self._prompt.drawn(inks)
        parts = [f"filter: {self._filter}"] if self._filter else []
        parts += [f"/{self._search}"] if self._search else []
        return Row().add("  ".join(parts), inks.key)

    def _place_note(self) -> str:
        rows, parts = self._shown, [self._note]
        if isinstance(rows, Rows) and len(self._order) < len(rows):
            parts.append(f"{len(self._order):,} of {len(rows):,}")
        elif len(self._order) > self._body:
            parts.append(f"{self._cursor + 1:,}/{len(self._order):,}")
        return " · ".join(part for part in parts if part)


def _headings(rows: Rows) -> list[str]:
    return [column.heading for column in rows.columns]


def _index(order: Sequence[int], row: int) -> int | None:
    try:
        return order.index(row)
    except ValueError:
        return None
