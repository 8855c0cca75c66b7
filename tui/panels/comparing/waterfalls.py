"""Where one profiled step of each side goes: bars on one scale."""

from bisect import bisect_right
from itertools import accumulate

from decodescope.analyzer.comparing.sides import answers_of
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.tables.answer_table import answers_table
from decodescope.analyzer.text.formatting import duration, signed_duration
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine

_TITLE = "Where one profiled step goes, on one scale"
_NAME_CELLS = 20
_TIME_CELLS = 9
_PART_CELLS = 26
_VALUE_CELLS = 11


def bar_parts(answer: Answer, scale_ns: int, cells: int) -> list[str]:
    """The part that each cell of the bar of a step shows, where `cells` cells are `scale_ns`: the
    part in the middle of the cell. A bar of any length has a cell."""
    parts = [part for part in answer.parts if part.ns]
    if scale_ns <= 0 or cells <= 0 or not parts:
        return []
    ends_ns = list(accumulate(part.ns for part in parts[:-1]))
    length = min(max(round(answer.whole_ns * cells / scale_ns), 1), cells)
    middles_ns = ((cell + 0.5) * scale_ns / cells for cell in range(length))
    return [parts[bisect_right(ends_ns, middle_ns)].part for middle_ns in middles_ns]


class ComparisonWaterfallsPanel(Panel[dict[str, Answer]]):
    """A bar for each side, by its name, then the parts with their letters and times."""

    NAME = "ab_waterfalls"
    _result: object = None
    _picked: dict[str, Answer] | Empty = Empty(_TITLE, "nothing compared yet")

    def pick(self, view: View, moment: Moment) -> dict[str, Answer] | Empty:
        result = view.comparison.result
        if result is not self._result and result is not None:
            self._result = result
            self._picked = answers_of(result) or Empty(_TITLE, "no side has profiled steps")
        return self._picked

    def wanted_rows(self, width: int) -> int:
        data = self._data
        return 0 if isinstance(data, Empty) else len(data) + 1 + len(answers_table(data).rows)

    def as_text(self, data: dict[str, Answer]) -> list[TextLine]:
        rows = answers_table(data).rows
        times = ((row.name, *(signed_duration(row.ns.get(name)) for name in data)) for row in rows)
        return [_TITLE, ("part", *data), *times]

    def draw(self, data: dict[str, Answer], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        names = min(max(map(len, data)), _NAME_CELLS, max(width // 3, 1))
        cells = max(width - names - _TIME_CELLS - 2, 0)
        scale_ns = max(answer.whole_ns for answer in data.values())
        rows = []
        for name, answer in data.items():
            row = Row().left(name, names, inks.text).add(" ", inks.text)
            for part in bar_parts(answer, scale_ns, cells):
                row.add(self._cell(part), inks.part(part))
            row.to(names + 1 + cells)
            rows.append(row.right(duration(answer.whole_ns), _TIME_CELLS + 1, inks.strong))
        if height > len(rows):
            end = duration(scale_ns)
            scale = Row().to(names + 1).add("0", inks.faint).add(" ", inks.faint)
            rows.append(scale.to(names + 1 + cells - len(end)).add(end, inks.faint))
        return Sheet([*rows, *self._table(data, width)], _TITLE)

    def _cell(self, part: str) -> str:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        blocks = inks.color and not inks.letters and glyphs.unicode
        return glyphs.ramp[-1] if blocks else PART_LETTERS.get(part, "?")

    def _table(self, answers: dict[str, Answer], width: int) -> list[Row]:
        """One row a part, and a column for each side that fits."""
        inks, glyphs = self._brush.inks, self._brush.glyphs
        first = min(_PART_CELLS, max(width - _VALUE_CELLS - 1, 1))
        shown = max((width - first) // (_VALUE_CELLS + 1), 0)
        head = Row().left("part", first, inks.dim)
        for name in list(answers)[:shown]:
            head.add(" ", inks.text).right(name, _VALUE_CELLS, inks.dim)
        rows = [head]
        for part in answers_table(answers).rows[:-1]:
            letter = PART_LETTERS.get(part.part, "?")
            mark = inks.mark(letter, glyphs.swatch) if inks.color else letter
            row = Row().add(f"{mark} ", inks.part(part.part))
            row.left(part.name, first - 2, inks.text)
            for name in list(answers)[:shown]:
                time = signed_duration(part.ns.get(name))
                row.add(" ", inks.text).right(time, _VALUE_CELLS, inks.text)
            rows.append(row)
        return rows
