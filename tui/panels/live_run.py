"""The panels of a run on the live page: its rate over time, its variants, its text, and the servers
of a group that the app is attached to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from rich.style import Style

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ExpertsBalance
from decodescope.analyzer.tables.servers_table import servers_table
from decodescope.analyzer.text.formatting import rate
from decodescope.analyzer.vocabulary.words import experts_words
from decodescope.tui.commands import CHOICE_KEYS
from decodescope.tui.model.view import Choice, SpeedSample, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine, wrapped_tail
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.table_rows import TableRows, text_lines
from decodescope.tui.style.palette import column

_AXIS_CELLS = 7
_LINE_CELLS = 9
# Of a server, also in a row each under the bars, where these have so many rows.
_FURTHER = {"running": "running", "p50 ms": "inter_token_ms"}
_LEAST_BARS = 3
SPAN_S = 240.0
HOLD_S = 3.0
_SLICES_S = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0)


@dataclass(frozen=True, slots=True)
class HistoryData:
    """The history, the choices that its samples belong to, and the tokens/s at the median and at
    the 99th percentile of the step time (tokens of a step ÷ step time) with their names. `balance`
    is that of a mixture of experts."""

    samples: tuple[SpeedSample, ...]
    choices: tuple[Choice, ...]
    lines: tuple[tuple[str, float], ...] = ()
    balance: ExpertsBalance | None = None

    @property
    def further(self) -> tuple[str, ...]:
        """The names of the figures that samples have beside their tokens/s."""
        return tuple(
            name
            for name, figure in _FURTHER.items()
            if any(getattr(sample, figure) is not None for sample in self.samples)
        )

    @property
    def experts(self) -> str:
        """How evenly a step uses its experts, in words; "" without any."""
        return "" if self.balance is None else experts_words(self.balance)


def slice_seconds(samples: tuple[SpeedSample, ...], columns: int) -> float:
    """Seconds per column: the finest slice at which the history, up to `SPAN_S`, fits."""
    if not samples or columns < 1:
        return _SLICES_S[0]
    span = min(samples[-1].at - samples[0].at, SPAN_S)
    return next(
        (slice_s for slice_s in _SLICES_S if span <= slice_s * (columns - 1)), _SLICES_S[-1]
    )


def sliced(
    samples: tuple[SpeedSample, ...], columns: int, slice_s: float
) -> list[SpeedSample | None]:
    """The last sample of each slice of time, with the newest slice at the right end.

    An empty slice repeats its predecessor for up to `HOLD_S`: statistics cover about a second, so
    a shorter hole has no meaning. Longer holes stay empty: nothing was measured.
    """
    if not samples:
        return [None] * max(columns, 0)
    first = int(samples[-1].at // slice_s) - columns + 1
    sample_of_slice = {int(sample.at // slice_s) - first: sample for sample in samples}
    slices = [sample_of_slice.get(place) for place in range(columns)]
    for before, after in pairwise(place for place in sample_of_slice if place >= 0):
        held = sample_of_slice[before]
        if sample_of_slice[after].at - held.at <= HOLD_S:
            slices[before + 1 : after] = [held] * (after - before - 1)
    return slices


def switches(slices: list[SpeedSample | None]) -> list[tuple[int, int]]:
    """(column, choice) where each stretch of one choice begins, including the first."""
    known = [(place, sample.choice) for place, sample in enumerate(slices) if sample is not None]
    return [next(stretch) for _, stretch in groupby(known, key=itemgetter(1))]


def axis_top(peak: float) -> float:
    """The end of the axis: 1, 1.5, 2, 3, 5 or 7.5 times a power of ten, at least `peak`."""
    if peak <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(peak))
    return next(power * f for f in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0) if power * f >= peak)


def middle_label(top: float, height: int) -> int | None:
    """The row nearest the middle of `height` whose upper edge is at a value of two digits, None if
    none is far enough from the ends of the axis."""
    for row in sorted(range(2, height - 2), key=lambda row: abs(2 * row - height)):
        value = top * (1 - row / height)
        if math.isclose(float(f"{value:.2g}"), value):
            return row
    return None


class HistoryPanel(Panel[HistoryData]):
    """Bars in the colour of their variant, with the variants' names below."""

    NAME = "history"
    PART = "figures"

    def pick(self, view: View) -> HistoryData | Empty:
        if not view.samples:
            return Empty("tok/s", "not timed" if view.interpreted else "no measurement yet")
        stats = view.stats
        lines: tuple[tuple[str, float], ...] = ()
        rates = stats and stats.rates
        if rates and view.hello is not None and rates.step_p99_ns:
            tokens_ns = view.hello.batch * 1e9
            lines = (("p50", tokens_ns / rates.step_p50_ns), ("p99", tokens_ns / rates.step_p99_ns))
        balance = stats.balance if stats else None
        return HistoryData(view.samples, view.choices, lines, balance)

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else 1 + len(self._data.further)

    def draw(self, data: HistoryData, width: int, height: int) -> Sheet:
        further = data.further if width >= 60 and height > len(data.further) + _LEAST_BARS else ()
        right = _LINE_CELLS if (data.lines or further) and width >= 60 else 0
        cells = max(width - _AXIS_CELLS - right, 1)
        slice_s = slice_seconds(data.samples, cells)
        slices = sliced(data.samples, cells, slice_s)
        span_s = slice_s * cells
        span = f"{span_s / 60:.0f} min" if span_s >= 90 else f"{span_s:.0f} s"
        bars = max(height - 1 - len(further), 1)
        rows, top = self._bars(slices, "tokens_per_s", bars)
        if right:
            self._mark_lines(rows, data.lines, top)
        if height > 1:
            rows.append(Row().to(_AXIS_CELLS).row(self._marks(slices, data.choices, cells), cells))
        for name in further:
            (row,), _ = self._bars(slices, _FURTHER[name], 1)
            rows.append(row.add(f" {name}", self._brush.inks.dim))
        notes = data.experts, f"last {span}"
        return Sheet(rows, "tok/s", " · ".join(filter(None, notes)))

    def _bars(
        self, slices: list[SpeedSample | None], figure: str, height: int
    ) -> tuple[list[Row], float]:
        """Bars of one figure of the samples, and the end of their axis."""
        inks, glyphs = self._brush.inks, self._brush.glyphs
        values = [None if sample is None else getattr(sample, figure) for sample in slices]
        top = axis_top(max((value for value in values if value is not None), default=0.0))
        labels = {0: rate(top)} | ({height - 1: "0"} if height > 1 else {})
        if (middle := middle_label(top, height)) is not None:
            labels[middle] = rate(top * (1 - middle / height))
        rows = [
            Row().right(labels.get(place, ""), _AXIS_CELLS - 1, inks.dim).add(" ", inks.text)
            for place in range(height)
        ]
        for sample, value in zip(slices, values, strict=True):
            if sample is None or value is None:
                pieces, style = [" "] * height, inks.text
            else:
                pieces = column(value / top, height, glyphs)
                style = inks.variant(max(sample.choice, 0))
            for row, piece in zip(rows, pieces, strict=True):
                row.add(piece, style)
        return rows, top

    def _mark_lines(self, rows: list[Row], lines: Sequence[tuple[str, float]], top: float) -> None:
        """Name the rows of the lines at the right end; the higher one comes first in a row."""
        inks, height = self._brush.inks, len(rows)
        names: dict[int, list[str]] = {}
        for name, value in lines:
            names.setdefault(min(int((1 - value / top) * height), height - 1), []).append(name)
        for place, row in enumerate(rows):
            if line_names := names.get(place):
                row.add(f"{self._brush.glyphs.line} {' '.join(line_names)}", inks.dim)

    def _marks(
        self, slices: list[SpeedSample | None], choices: tuple[Choice, ...], width: int
    ) -> Row:
        row = Row()
        marks = switches(slices)
        for order, (place, choice) in enumerate(marks):
            end = marks[order + 1][0] if order + 1 < len(marks) else width
            known = 0 <= choice < len(choices)
            number = f"{self._brush.glyphs.tick}{choice + 1}" if known else ""
            name = f"{number} {choices[choice].name}" if known else number
            if order == len(marks) - 1 and place + len(name) > width:
                place = max(width - len(name), row.cells)
            fitting = name if len(name) < end - place or end == width else number
            if row.cells <= place and len(fitting) <= max(end - place, width - place):
                row.to(place).add(fitting, self._brush.inks.variant(max(choice, 0)))
        return row


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

    def pick(self, view: View) -> VariantsData | Empty:
        title = "Traces" if view.kind == "trace" else "Variants"
        title = "Windows" if view.attached is not None else title
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


TITLE = "Generated text"


class TextPanel(Panel[tuple[str, str]]):
    """The text as it is generated; follows its end. Without a tokenizer it wants no rows."""

    NAME = "text"

    def pick(self, view: View) -> tuple[str, str] | Empty:
        stats = view.stats
        if stats is None or not stats.text:
            return Empty(TITLE, "")
        return stats.text, f"generation {stats.round} · position {stats.position:,}"

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else 1

    def draw(self, data: tuple[str, str], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        rows = [Row().add(line, inks.text) for line in wrapped_tail(data[0], width, height)]
        if rows and rows[-1].cells < width:
            rows[-1].add("▌", inks.accent)
        return Sheet(rows, TITLE, data[1])


_SERVERS = "Servers"


class ServersPanel(Panel[ServerFigures]):
    """Of one server it wants no rows: the strip has its figures."""

    NAME = "servers"

    def pick(self, view: View) -> ServerFigures | Empty:
        sample = None if view.attached is None else view.attached.sample
        if sample is None or sample.figures is None or not sample.figures.servers:
            return Empty(_SERVERS, "one server")
        return sample.figures

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else len(self._data.servers) + 2

    def as_text(self, data: ServerFigures) -> list[TextLine]:
        return [_SERVERS, *text_lines(TableRows(servers_table(data)), self._brush)]

    def draw(self, data: ServerFigures, width: int, height: int) -> Sheet:
        rows = TableRows(servers_table(data))
        return Sheet(TableLayout().lines(rows, width, height, self._brush), _SERVERS)
