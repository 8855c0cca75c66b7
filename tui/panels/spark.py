"""The tok/s history: one bar per slice of time, a mark where the variant changed."""

from dataclasses import dataclass
from itertools import pairwise

from decodescope.analyzer.formatting import rate
from decodescope.tui.model.view import Choice, Moment, Sample, View
from decodescope.tui.panels.panel import Empty, Panel, Row, Sheet
from decodescope.tui.style.glyphs import column

SPAN_S = 240.0
HOLD_S = 3.0
_SLICES_S = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0)


@dataclass(frozen=True, slots=True)
class SparkData:
    """The history, and the choices that its samples belong to."""

    samples: tuple[Sample, ...]
    choices: tuple[Choice, ...]


def slice_seconds(samples: tuple[Sample, ...], columns: int) -> float:
    """Seconds per column: the finest slice at which the history, up to `SPAN_S`, fits."""
    if not samples or columns < 1:
        return _SLICES_S[0]
    span = min(samples[-1].at - samples[0].at, SPAN_S)
    for slice_s in _SLICES_S:
        if span <= slice_s * (columns - 1):
            return slice_s
    return _SLICES_S[-1]


def sliced(samples: tuple[Sample, ...], columns: int, slice_s: float) -> list[Sample | None]:
    """The last sample of each slice of time, with the newest slice at the right end.

    An empty slice repeats its predecessor for up to `HOLD_S`: statistics cover about a second, so
    a shorter hole has no meaning. Longer holes stay empty: nothing was measured.
    """
    if not samples:
        return [None] * max(columns, 0)
    first = int(samples[-1].at // slice_s) - columns + 1
    found = {int(sample.at // slice_s) - first: sample for sample in samples}
    slices = [found.get(place) for place in range(columns)]
    for before, after in pairwise(place for place in found if place >= 0):
        held = found[before]
        if found[after].at - held.at <= HOLD_S:
            slices[before + 1 : after] = [held] * (after - before - 1)
    return slices


def switches(slices: list[Sample | None]) -> list[tuple[int, int]]:
    """(column, choice) where each stretch of one choice begins, including the first."""
    marks = []
    choice = None
    for place, sample in enumerate(slices):
        if sample is not None and sample.choice != choice:
            choice = sample.choice
            marks.append((place, choice))
    return marks


class SparkPanel(Panel[SparkData]):
    """Bars in the colour of their variant, with the variants' names below."""

    NAME = "spark"

    def pick(self, view: View, moment: Moment) -> SparkData | Empty:
        if view.samples:
            return SparkData(view.samples, view.choices)
        if view.kind == "trace":
            return Empty("tok/s", "a trace file has no tok/s history")
        return Empty("tok/s", "no measurement yet")

    def draw(self, data: SparkData, width: int, height: int) -> Sheet:
        slice_s = slice_seconds(data.samples, width)
        slices = sliced(data.samples, width, slice_s)
        peak = max((s.tokens_per_s for s in slices if s is not None), default=0.0)
        span_s = slice_s * width
        span = f"{span_s / 60:.0f} min" if span_s >= 90 else f"{span_s:.0f} s"
        rows = self._bars(slices, peak, max(height - 1, 1))
        if height > 1:
            rows.append(self._marks(slices, data.choices, width))
        return Sheet(rows, "tok/s", f"0\u2013{rate(peak)} over {span}")

    def _bars(self, slices: list[Sample | None], peak: float, height: int) -> list[Row]:
        rows = [Row() for _ in range(height)]
        inks, glyphs = self._brush.inks, self._brush.glyphs
        for sample in slices:
            if sample is None:
                pieces, style = [" "] * height, inks.text
            else:
                share = sample.tokens_per_s / peak if peak > 0 else 0.0
                pieces, style = column(share, height, glyphs), inks.variant(max(sample.choice, 0))
            for row, piece in zip(rows, pieces, strict=True):
                row.add(piece, style)
        return rows

    def _marks(self, slices: list[Sample | None], choices: tuple[Choice, ...], width: int) -> Row:
        row = Row()
        marks = switches(slices)
        for order, (place, choice) in enumerate(marks):
            end = marks[order + 1][0] if order + 1 < len(marks) else width
            known = 0 <= choice < len(choices)
            number = f"{self._brush.glyphs.tick}{choice + 1}" if known else "?"
            name = f"{number} {choices[choice].name}" if known else number
            if order == len(marks) - 1 and place + len(name) > width:
                place = max(width - len(name), row.cells)
            fitting = name if len(name) < end - place or end == width else number
            if row.cells <= place and len(fitting) <= max(end - place, width - place):
                row.to(place).add(fitting, self._brush.inks.variant(max(choice, 0)))
        return row
