"""The choices of `v` and of the numbers: variants of a live run, or opened trace files."""

from dataclasses import dataclass

from rich.style import Style

from decodescope.tui.commands import CHOICE_KEYS
from decodescope.tui.model.view import Choice, Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet

# The pointer, the number, and the dash of what cannot be chosen.
_MARKS = 5
_LEAST_WORDS = 10


@dataclass(frozen=True, slots=True)
class VariantsData:
    title: str
    choices: tuple[Choice, ...]
    current: int


def first_shown(total: int, current: int, rows: int) -> int:
    """The first of `total` entries to show so that `current` is one of the `rows` shown."""
    if total <= rows or current < 0:
        return 0
    return min(max(current - rows // 2, 0), total - rows)


class VariantsPanel(Panel[VariantsData]):
    """One line per choice; the current one is marked, an unavailable one gives its reason."""

    NAME = "variants"

    def pick(self, view: View, moment: Moment) -> VariantsData | Empty:
        title = "Traces" if view.kind == "trace" else "Variants"
        if not view.choices:
            return Empty(title, "waiting for the worker")
        return VariantsData(title, view.choices, view.current)

    def wanted_rows(self, width: int) -> int | None:
        data = self._data
        return len(data.choices) if isinstance(data, VariantsData) and len(data.choices) > 1 else 0

    def draw(self, data: VariantsData, width: int, height: int) -> Sheet:
        total = len(data.choices)
        first = first_shown(total, data.current, max(height, 1))
        shown = range(first, min(first + height, total))
        # Names that are cut alike cannot be told apart; what is said of them is in the list of v.
        names = min(max(len(choice.name) for choice in data.choices), max(width - _MARKS, 1))
        rows = [self._line(data, index, names, width) for index in shown]
        hidden = total - len(shown)
        several = sum(choice.unavailable is None for choice in data.choices) > 1
        notes = ("v switches" if several else "", f"{hidden} more" if hidden else "")
        return Sheet(rows, data.title, " · ".join(filter(None, notes)))

    def _line(self, data: VariantsData, index: int, names: int, width: int) -> Row:
        choice, inks = data.choices[index], self._brush.inks
        current = index == data.current
        click = Style.from_meta({"@click": f"app.choose({index})"})
        pointer = self._brush.glyphs.pointer if current else " "
        row = Row().add(pointer, inks.variant(index) + click)
        number = CHOICE_KEYS[index] if index < len(CHOICE_KEYS) else " "
        if choice.unavailable is not None:
            row.add(f"{number} ", inks.faint + click).left(choice.name, names, inks.faint + click)
            row.left(" \u2013", min(2, width - row.cells), inks.faint + click)
            return self._about(row, choice.unavailable, width, inks.faint + click)
        row.add(f"{number} ", inks.key + click)
        name_style = inks.variant(index) + Style(bold=True) if current else inks.text
        row.left(choice.name, names, name_style + click)
        return self._about(row, f" {choice.summary}", width, inks.dim + click)

    def _about(self, row: Row, text: str, width: int, style: Style) -> Row:
        """The rest of a row: some of the text, unless it would only be its first letters."""
        room = width - row.cells
        return row.left(f" {text}" if room >= _LEAST_WORDS else "", room, style)
