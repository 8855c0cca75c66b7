"""Where one profiled step of each side goes: bars on one scale."""

from decodescope.analyzer.comparing.sides import Bar, Waterfalls, sides_of, waterfalls_of
from decodescope.analyzer.text.formatting import duration, signed_duration
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS
from decodescope.analyzer.vocabulary.words import part_words
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine

_TITLE = "Where one profiled step goes, on one scale"
_NAME_CELLS = 20
_TIME_CELLS = 9
_PART_CELLS = 26
_VALUE_CELLS = 11


def bar_parts(bar: Bar, scale_ns: int, cells: int) -> list[str]:
    """The part that each cell of the bar shows, where `cells` cells are `scale_ns`: the part in the
    middle of the cell. A bar of any length has a cell."""
    if scale_ns <= 0 or cells <= 0 or not bar.parts:
        return []
    length = min(max(round(bar.step_ns * cells / scale_ns), 1), cells)
    parts, place = [], 0
    for cell in range(length):
        middle_ns = (cell + 0.5) * scale_ns / cells
        while place < len(bar.parts) - 1 and bar.parts[place + 1][1] <= middle_ns:
            place += 1
        parts.append(bar.parts[place][0])
    return parts


class ComparisonWaterfallsPanel(Panel[Waterfalls]):
    """A bar for each side, then the parts with their letters and times."""

    NAME = "ab_waterfalls"
    _result: object = None
    _picked: Waterfalls | Empty = Empty(_TITLE, "nothing compared yet")

    def pick(self, view: View, moment: Moment) -> Waterfalls | Empty:
        result = view.comparison.result
        if result is not self._result and result is not None:
            self._result = result
            waterfalls = waterfalls_of(sides_of(result))
            none = Empty(_TITLE, "no side has profiled steps")
            self._picked = waterfalls if waterfalls.bars else none
        return self._picked

    def wanted_rows(self, width: int) -> int:
        data = self._data
        return 0 if isinstance(data, Empty) else len(data.bars) + 1 + len(data.table) + 1

    def as_text(self, data: Waterfalls) -> list[TextLine]:
        lines: list[TextLine] = [_TITLE, ("part", *(bar.name for bar in data.bars))]
        for part, lengths in data.table:
            lines.append((part_words(part), *map(signed_duration, lengths)))
        return [*lines, ("step", *(duration(bar.step_ns) for bar in data.bars))]

    def draw(self, data: Waterfalls, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        names = min(max(len(bar.name) for bar in data.bars), _NAME_CELLS, max(width // 3, 1))
        cells = max(width - names - _TIME_CELLS - 2, 0)
        rows = []
        for bar in data.bars:
            row = Row().left(bar.name, names, inks.text).add(" ", inks.text)
            for part in bar_parts(bar, data.scale_ns, cells):
                row.add(self._cell(part), inks.part(part))
            row.to(names + 1 + cells)
            rows.append(row.right(duration(bar.step_ns), _TIME_CELLS + 1, inks.strong))
        if height > len(rows):
            end = duration(data.scale_ns)
            scale = Row().to(names + 1).add("0", inks.faint).add(" ", inks.faint)
            rows.append(scale.to(names + 1 + cells - len(end)).add(end, inks.faint))
        return Sheet([*rows, *self._table(data, width)], _TITLE)

    def _cell(self, part: str) -> str:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        blocks = inks.color and not inks.letters and glyphs.unicode
        return glyphs.ramp[-1] if blocks else PART_LETTERS.get(part, "?")

    def _table(self, waterfalls: Waterfalls, width: int) -> list[Row]:
        """One row a part, and a column for each side that fits."""
        inks, glyphs = self._brush.inks, self._brush.glyphs
        first = min(_PART_CELLS, max(width - _VALUE_CELLS - 1, 1))
        shown = max((width - first) // (_VALUE_CELLS + 1), 0)
        head = Row().left("part", first, inks.dim)
        for bar in waterfalls.bars[:shown]:
            head.add(" ", inks.text).right(bar.name, _VALUE_CELLS, inks.dim)
        rows = [head]
        for part, lengths in waterfalls.table:
            letter = PART_LETTERS.get(part, "?")
            mark = inks.mark(letter, glyphs.swatch) if inks.color else letter
            row = Row().add(f"{mark} ", inks.part(part))
            row.left(part_words(part), first - 2, inks.text)
            for ns in lengths[:shown]:
                row.add(" ", inks.text).right(signed_duration(ns), _VALUE_CELLS, inks.text)
            rows.append(row)
        return rows
