"""The median steps of both sides, one above the other: the same layer begins at the same column."""

from collections.abc import Set
from fractions import Fraction

import numpy as np

from decodescope.analyzer.answer.parts import WORK
from decodescope.analyzer.names.fitted_names import short_kernel
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.tracks.aligned_steps import AlignedStep, AlignedSteps
from decodescope.analyzer.tracks.viewport import Viewport
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS
from decodescope.tui.commands import commands_of
from decodescope.tui.model.view import View
from decodescope.tui.panels.comparing.tables import ComparisonKeys, idle_comparison
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine

_TITLE = "Median steps by layer"
_NOTE = "without idle time"
_GUTTER, _LEAST_LABEL = 4, 3


class ComparisonStepsPanel(Panel[AlignedSteps], ComparisonKeys):
    """A row of bars and a row of roles a side; the cursor shows the op of each."""

    NAME = "ab_steps"
    # The keys of rounds zoom here: files have none.
    COMMANDS = (
        *commands_of("ab_steps"),
        *(c for c in commands_of("comparison") if not c.action.startswith("rounds")),
    )

    _steps: AlignedSteps | None = None
    _at_ns = 0
    _viewport = Viewport(0, 1)

    def idle_actions(self) -> Set[str]:
        return idle_comparison(self._seen)

    def pick(self, view: View) -> AlignedSteps | Empty:
        steps = view.comparison.steps
        if steps is None:
            return Empty(_TITLE, "no steps of files are compared")
        if self._steps is not steps:
            self._steps = steps
            self._at_ns, self._viewport = 0, Viewport(0, int(steps.start_ns[-1]))
        return steps

    def wanted_rows(self, width: int) -> int:
        return 7 if isinstance(self._data, AlignedSteps) else 0

    def as_text(self, data: AlignedSteps) -> list[TextLine]:
        return [_TITLE, *self._told(data)]

    def draw(self, data: AlignedSteps, width: int, height: int) -> Sheet:
        columns = max(width - _GUTTER, 1)
        end_ns = int(data.start_ns[-1])
        shown = self._viewport.showing(self._at_ns, self._at_ns).within(0, end_ns, columns)
        edges_ns, cursor = shown.edges_ns(columns), shown.column_of(self._at_ns, columns)
        rows = [self._layers(data, edges_ns)]
        for name, side in zip("AB", data.sides, strict=True):
            rows += [self._bars(name, side, edges_ns, cursor), self._roles(side, edges_ns)]
        rows += [Row().add(line, self._brush.inks.text) for line in self._told(data)]
        busy = " against ".join(duration(side.busy_ns) for side in data.sides)
        return Sheet(rows[:height], f"{_TITLE}  {busy} busy", _NOTE)

    def action_op(self, by: int) -> None:
        if isinstance(self._data, AlignedSteps):
            starts = [side.track.start_ns for side in self._data.sides]
            self._go(np.unique(np.concatenate(starts)), by)

    def action_layer(self, by: int) -> None:
        if isinstance(self._data, AlignedSteps):
            self._go(np.unique(self._data.start_ns[:-1]), by)

    def action_zoom(self, by: int) -> None:
        if isinstance(self._data, AlignedSteps):
            end_ns, factor = int(self._data.start_ns[-1]), Fraction(1, 2) if by > 0 else Fraction(2)
            zoomed = self._viewport.zoomed(factor, self._at_ns)
            self._viewport = zoomed.within(0, end_ns, max(self.size.width, 1))
            self._redraw()

    def _go(self, stops_ns: Int64s, by: int) -> None:
        beyond = stops_ns > self._at_ns if by > 0 else stops_ns >= self._at_ns
        place = int(np.count_nonzero(~beyond)) - (by < 0)
        self._at_ns = int(stops_ns[min(max(place, 0), len(stops_ns) - 1)])
        self._viewport = self._viewport.showing(self._at_ns, self._at_ns + 1)
        self._redraw()

    def _layers(self, data: AlignedSteps, edges_ns: Int64s) -> Row:
        row = Row().to(_GUTTER)
        for layer, at_ns in enumerate(data.start_ns[1:-2].tolist()):
            column = int(np.searchsorted(edges_ns, at_ns, side="right")) - 1 + _GUTTER
            if edges_ns[0] <= at_ns < edges_ns[-1] and column >= row.cells:
                row.to(column).add(f"╵{layer} ", self._brush.inks.dim)
        return row

    def _bars(self, name: str, side: AlignedStep, edges_ns: Int64s, cursor: int) -> Row:
        inks = self._brush.inks
        row, drawn = Row().add(name, inks.strong).to(_GUTTER), side.track.columns(edges_ns)
        for column, (share, kind) in enumerate(zip(drawn.busy, drawn.kind, strict=True)):
            glyph, style = " ", inks.text
            if share > 0:
                part = WORK[kind]
                glyph = PART_LETTERS.get(part, "O") if inks.letters else "█"
                style = inks.part(part)
            row.add("│" if column == cursor else glyph, inks.cursor if column == cursor else style)
        return row

    def _roles(self, side: AlignedStep, edges_ns: Int64s) -> Row:
        """The role of each op in view that has room for some of its name."""
        row, track = Row().to(_GUTTER), side.track
        first = int(np.searchsorted(track.end_ns, edges_ns[0], side="right"))
        after = int(np.searchsorted(track.start_ns, edges_ns[-1]))
        if (after - first) * _LEAST_LABEL > len(edges_ns):
            return row
        begin = np.searchsorted(edges_ns, track.start_ns[first:after], side="left")
        end = np.searchsorted(edges_ns, track.end_ns[first:after], side="left")
        for place, (left, right) in enumerate(
            zip(begin.tolist(), end.tolist(), strict=True), first
        ):
            if right - left > _LEAST_LABEL and left + _GUTTER >= row.cells:
                role = WORK[track.slices.kind[track.part[place]]]
                row.to(left + _GUTTER).left(
                    role, min(right - left - 1, len(role)), self._brush.inks.dim
                )
        return row

    def _told(self, data: AlignedSteps) -> list[str]:
        lines, place = [], data.place_at(self._at_ns)
        for name, side in zip("AB", data.sides, strict=True):
            op = side.at(self._at_ns)
            text = "nothing: this side's layer is over"
            if op is not None:
                text = f"{op[0]}  {duration(op[2])}  {short_kernel(op[1], 60)}"
            lines.append(f"{name}   {place}  {text}")
        return lines
