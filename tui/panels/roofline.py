"""The roofline of the window: kernels as letters under the peaks of the device."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rich.cells import cell_len
from rich.style import Style
from textual import events

from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.reports.roofline_model import RooflineModel, RooflinePoint, roofline_model
from decodescope.analyzer.reports.step_figures import window_bandwidth
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import Bandwidth
from decodescope.analyzer.tables.kernels_table import short_names
from decodescope.analyzer.text.formatting import flops_rate, percent, significant
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import KernelPick
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import Choose, PageRequest
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet
from decodescope.tui.style.palette import Inks

TITLE = "Roofline"
_GUTTER, _LEAST_PLOT, _NAME_CELLS = 7, 4, 8
_LARGE, _MEDIUM = 0.25, 0.05
Cell = tuple[str, Style]
Put = Callable[[int, int, str, Style], None]
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_MARGIN = 1.6


@dataclass(frozen=True, slots=True)
class LogAxis:
    """`cells` cells from `low` to `high`, both above 0; each cell covers the same factor."""

    low: float
    high: float
    cells: int

    @classmethod
    def around(cls, values: Sequence[float], cells: int) -> "LogAxis":
        """An axis that holds every value, with a margin of a factor of 1.6."""
        return cls(min(values) / _MARGIN, max(values) * _MARGIN, max(cells, 1))

    def cell(self, value: float) -> int:
        """The cell of a value; the first or the last one for values outside."""
        if value <= self.low:
            return 0
        place = math.log(value / self.low) / math.log(self.high / self.low) * self.cells
        return min(int(place), self.cells - 1)

    def value(self, cell: int) -> float:
        return float(self.low * (self.high / self.low) ** ((cell + 0.5) / self.cells))

    def decades(self) -> Iterator[tuple[float, int]]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        for power in range(first, last + 1):
            yield 10.0**power, self.cell(10.0**power)


def decade_text(value: float) -> str:
    """A power of ten in at most four characters: "10 G", "0.1"."""
    for factor, unit in _UNITS:
        if value >= factor * 0.999:
            return f"{value / factor:.0f}{' ' if unit else ''}{unit}"
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class RooflineData:
    model: RooflineModel
    names: ShortNames
    step: Bandwidth | None
    selected: str | None = None


def _roofline_data(report: Report) -> RooflineData:
    model = roofline_model(report)
    points = [*model.points, *([model.step] if model.step else [])]
    names = short_names(report.kernels, (point.name for point in points))
    return RooflineData(model, names, window_bandwidth(report))


class RooflinePanel(Panel[RooflineData]):
    """FLOP/s over FLOP/byte, both logarithmic; the arrows go from kernel to kernel."""

    NAME = "roofline"
    COMMANDS = commands_of("roofline")

    _of: Window | None = None
    _unselected: RooflineData | None = None
    # The column, the row and the kernel of each mark of the plot.
    _marks: Sequence[tuple[int, int, str]] = ()

    def pick(self, view: View) -> RooflineData | Empty:
        window = view.window
        if window is None:
            return Empty(TITLE, view.waiting)
        if window is not self._of or self._unselected is None:
            self._of, self._unselected = window, _roofline_data(window.report)
        model, chosen = self._unselected.model, view.selection.pick
        if not model.points and model.step is None:
            return Empty(TITLE, "this trace says of no kernel how many bytes and FLOPs it has")
        selected = chosen.name if isinstance(chosen, KernelPick) else None
        return replace(self._unselected, selected=selected)

    def as_text(self, data: RooflineData) -> list[str]:
        return [TITLE, *(_words(point, point.name) for point in data.model.points)]

    def draw(self, data: RooflineData, width: int, height: int) -> Sheet:
        rows: list[Row] = []
        plot = height - 3
        self._marks = ()
        if plot >= _LEAST_PLOT and width > 3 * _GUTTER:
            rows = self._plot(data, width - _GUTTER, plot)
        if height > len(rows) + 1:
            rows.append(self._legend(data.model, width))
        rows.append(self._about(data, width))
        title = f"{TITLE}: FLOP/s over FLOP/byte"
        return Sheet(rows[:height], title, _note(data, width - cell_len(title) - 6))

    def action_next(self, right: int, up: int) -> None:
        """Select the next kernel in a direction; without a selection the one that takes longest."""
        data = self._data
        if not isinstance(data, RooflineData) or not data.model.points:
            return
        points = data.model.points
        now = next((point for point in points if point.name == data.selected), None)
        if now is None:
            chosen = max(points, key=lambda point: point.ns)
        else:
            across = attrgetter("intensity", "flops_per_s", "name")
            upward = attrgetter("flops_per_s", "intensity", "name")
            ordered = sorted(points, key=across if right else upward)
            place = ordered.index(now) + right + up
            chosen = ordered[max(min(place, len(ordered) - 1), 0)]
        self.post_message(Choose(KernelPick(chosen.name)))

    def action_open_kernel(self) -> None:
        if isinstance(data := self._data, RooflineData) and data.selected is not None:
            self.post_message(PageRequest(page="kernels"))

    def on_click(self, event: events.Click) -> None:
        """Select the kernel whose mark is nearest."""
        x, y = event.x - self.inset, event.y - (self.inset > 0)
        if self._marks:
            nearest = min(self._marks, key=lambda mark: abs(mark[0] - x) + 2 * abs(mark[1] - y))
            self.post_message(Choose(KernelPick(nearest[2])))

    def _plot(self, data: RooflineData, width: int, height: int) -> list[Row]:
        inks = self._brush.inks
        model = data.model
        points = [*model.points, *([model.step] if model.step else [])]
        across, upward = _axes(model, points, width, height)
        grid: list[list[Cell]] = [[(" ", inks.text)] * width for _ in range(height)]

        def put(x: int, y: int, text: str, style: Style) -> None:
            for place, char in enumerate(text, x):
                if 0 <= place < width and 0 <= y < height:
                    grid[height - 1 - y][place] = (char, style)

        _ceilings(model, across, upward, inks, put)
        total_ns = sum(point.ns for point in model.points) or 1
        marks: list[tuple[int, int, str]] = []
        for point in sorted(
            model.points, key=lambda point: (point.name == data.selected, point.ns)
        ):
            x, y = across.cell(point.intensity), upward.cell(point.flops_per_s)
            text, shift = _mark(point, point.ns / total_ns, point.name == data.selected)
            style = inks.family(point.family)
            put(x - shift, y, text, style + inks.cursor if point.name == data.selected else style)
            marks.append((x + _GUTTER, height - 1 - y, point.name))
        self._marks = marks
        if (step := model.step) is not None:
            put(across.cell(step.intensity), upward.cell(step.flops_per_s), "S", inks.strong)
        rows = []
        labels = {height - 1 - y: decade_text(value) for value, y in upward.decades()}
        for number, cells in enumerate(grid):
            row = Row().right(labels.get(number, ""), _GUTTER - 2, inks.dim)
            row.add(" ┤" if number in labels else " │", inks.faint)
            for char, style in cells:
                row.add(char, style)
            rows.append(row)
        foot = Row().to(_GUTTER)
        for value, x in across.decades():
            text = decade_text(value)
            if x + _GUTTER >= foot.cells + (foot.cells > _GUTTER) and x + len(text) < width:
                foot.to(x + _GUTTER).add(self._brush.glyphs.tick, inks.faint).add(text, inks.dim)
        return [*rows, foot]

    def _legend(self, model: RooflineModel, width: int) -> Row:
        inks, row = self._brush.inks, Row()
        families = dict.fromkeys(point.family for point in model.points)
        entries = [
            (FAMILY_LETTERS.get(family, "?"), inks.family(family), family) for family in families
        ]
        if model.step is not None:
            entries.append(("S", inks.strong, "the whole step"))
        if model.points:
            sizes = f"over {_LARGE:.0%} of their time, m under {_MEDIUM:.0%}"
            entries.append(("(M)", inks.dim, sizes))
        for mark, style, words in entries:
            if row.cells + len(mark) + len(words) + 3 <= width:
                row.add(f"{mark} ", style).add(f"{words}  ", inks.dim)
        return row

    def _about(self, data: RooflineData, width: int) -> Row:
        """The selected kernel, else the one that takes longest, else the step."""
        points = data.model.points
        chosen = next((point for point in points if point.name == data.selected), None)
        chosen = chosen or max(points, key=lambda point: point.ns, default=data.model.step)
        if chosen is None:
            return Row()
        before = "" if chosen.name == data.selected or not points else "longest: "
        words = _words(chosen, "")
        room = width - _NAME_CELLS
        if len(before) + len(words) > room:
            before = ""
        if len(words) > room:
            words = f"{words[: max(room - 1, 0)]}…"
        name = data.names.of(chosen.name, width - len(words) - len(before))
        style = self._brush.inks.text
        return Row().add(before, self._brush.inks.dim).add(name, style).add(words, style)


def _words(point: RooflinePoint, name: str) -> str:
    share = point.share_of_limit
    near = f", {percent(share)} % of limit" if share is not None else ""
    rate = f"{significant(point.intensity)} FLOP/byte, {flops_rate(point.flops_per_s)}"
    return f"{name}: {rate}{near}"


def _note(data: RooflineData, room: int) -> str:
    """The peaks and the bandwidth of the step, those that fit whole."""
    model = data.model
    parts = [
        f"{significant(bandwidth.per_s / 1e12)} TB/s {bandwidth.label}"
        for bandwidth in model.bandwidths
    ]
    parts += [f"{flops_rate(compute.per_s)} {compute.label}" for compute in model.computes]
    if not parts:
        parts = ["peaks of this device unknown"]
    if model.unknown:
        parts.insert(1, f"{model.unknown} kernels of unknown work")
    if data.step is not None and data.step.mbu is not None:
        rate = f"{significant(data.step.achieved_bytes_per_s / 1e9)} GB/s"
        parts.insert(1, f"a step reads {rate}, MBU {percent(data.step.mbu)} %")
    note = ""
    for part in parts:
        longer = f"{note} · {part}" if note else part
        note = longer if cell_len(longer) <= room else note
    return note


def _mark(point: RooflinePoint, share: float, selected: bool) -> tuple[str, int]:
    """The mark of a point by its share of the time, and how far it begins left of it."""
    letter = FAMILY_LETTERS.get(point.family, "?")
    if selected:
        return f"[{letter}]", 1
    if share >= _LARGE:
        return f"({letter})", 1
    return letter if share >= _MEDIUM else letter.lower(), 0


def _axes(
    model: RooflineModel, points: list[RooflinePoint], width: int, height: int
) -> tuple[LogAxis, LogAxis]:
    across = [point.intensity for point in points]
    upward = [point.flops_per_s for point in points] + [compute.per_s for compute in model.computes]
    if model.bandwidths:
        across += [compute.per_s / model.bandwidths[0].per_s for compute in model.computes]
        upward += [min(across) * model.bandwidths[0].per_s]
    return LogAxis.around(across, width), LogAxis.around(upward, height)


def _ceilings(model: RooflineModel, across: LogAxis, upward: LogAxis, inks: Inks, put: Put) -> None:
    """Each bandwidth's slope up to the highest peak, each peak; what decides is drawn last."""
    top = max((compute.per_s for compute in model.computes), default=math.inf)
    for number, bandwidth in reversed(list(enumerate(model.bandwidths))):
        for x in range(across.cells):
            roof = across.value(x) * bandwidth.per_s
            if roof <= top:
                mark, style = (".", inks.faint) if number else ("•", inks.accent)
                put(x, upward.cell(roof), mark, style)
    bandwidth_per_s = model.bandwidths[0].per_s if model.bandwidths else math.inf
    for compute in model.computes:
        for x in range(across.cells):
            if across.value(x) * bandwidth_per_s >= compute.per_s:
                style = inks.accent if compute.per_s == top else inks.faint
                put(x, upward.cell(compute.per_s), "─", style)
