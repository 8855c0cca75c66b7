"""Charts that compare variants: rates with intervals, and speed beside error."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks
from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.comparison_report import Standing, VariantRates
from decodescope.analyzer.text.formatting import accuracy_figure, rate
from decodescope.analyzer.vocabulary.words import beaten_text

_RATES_LEFT, _ROW_PX, _AXIS_PX = 150.0, 34.0, 24.0
_RATES_PX, _SPREAD_LEFT = 470.0, 800.0
_SPREAD_PX = CHART_WIDTH - _SPREAD_LEFT - 24
_FRONTIER_LEFT, _FRONTIER_TOP, _FRONTIER_AXIS_PX = 70.0, 26.0, 40.0
_LABELS_PX, _LABEL_PX, _LABEL_LETTERS = 270.0, 15.0, 36
_FRONTIER_WIDTH = CHART_WIDTH - _FRONTIER_LEFT - _LABELS_PX
_FRONTIER_RIGHT = _FRONTIER_LEFT + _FRONTIER_WIDTH
_FRONTIER_HEIGHT = 300.0
# KL below this is rounding of the float64 sums; zero has no logarithm.
_SMALLEST_KL = 1e-12


def rates_svg(variants: Sequence[VariantRates]) -> Markup | None:
    """Left: tokens/s from zero, a dot per round. Right: the same dots and the interval of the mean,
    as deviation from the variant's own mean, which shows the noise. None if nothing was timed."""
    variants = [variant for variant in variants if variant.mean is not None]
    if not variants:
        return None
    height = _AXIS_PX + len(variants) * _ROW_PX
    about = ", ".join(f"{variant.variant}: {rate(variant.mean)}" for variant in variants)
    drawing = Drawing(height, "tokens/s of each variant, a dot per round", about)
    highest = max([1e-9, *(value for variant in variants for value in variant.tokens_per_s)])
    spread = max([1e-6, *(abs(value) for variant in variants for value in _deviations(variant))])
    for at in ticks(highest, 6):
        x = _RATES_LEFT + at / highest * _RATES_PX
        drawing.line(x, 16, x, height, "grid")
        drawing.text(x + 3, 12, f"{at:,g}", "dim")
    middle = _SPREAD_LEFT + _SPREAD_PX / 2
    drawing.line(middle, 16, middle, height, "axis")
    drawing.text(middle, 12, "mean", "dim", "middle")
    drawing.text(_SPREAD_LEFT, 12, f"-{spread * 100:.2g} %", "dim")
    drawing.text(_SPREAD_LEFT + _SPREAD_PX, 12, f"+{spread * 100:.2g} %", "dim", "end")
    for row, variant in enumerate(variants):
        y = _AXIS_PX + (row + 0.5) * _ROW_PX
        drawing.text(0, y + 4, cut_middle(variant.variant, 18), "strong")
        _rate_bar(drawing, variant, y, highest)
        _spread_row(drawing, variant, y, spread)
    return drawing.markup()


def _deviations(variant: VariantRates) -> list[float]:
    """The rounds and the ends of the interval, relative to the mean."""
    values = list(variant.tokens_per_s)
    if variant.interval is not None:
        values += [variant.interval.low, variant.interval.high]
    return [value / variant.mean - 1 for value in values] if variant.mean else []


def _rate_bar(drawing: Drawing, variant: VariantRates, y: float, highest: float) -> None:
    mean = variant.mean or 0.0
    width = mean / highest * _RATES_PX
    drawing.rect(_RATES_LEFT, y - 7, width, 14, "bar", f"mean {rate(mean)} tokens/s")
    _dots(drawing, variant, y, lambda value: _RATES_LEFT + value / highest * _RATES_PX)
    farthest = max([mean, *variant.tokens_per_s]) / highest * _RATES_PX
    drawing.text(_RATES_LEFT + farthest + 8, y + 4, rate(mean), "strong")


def _spread_row(drawing: Drawing, variant: VariantRates, y: float, spread: float) -> None:
    def x(value: float) -> float:
        relative = value / variant.mean - 1 if variant.mean else 0.0
        return _SPREAD_LEFT + _SPREAD_PX / 2 * (1 + relative / spread)

    if variant.interval is not None:
        low, high = x(variant.interval.low), x(variant.interval.high)
        tip = f"{rate(variant.interval.low)} to {rate(variant.interval.high)} tokens/s"
        drawing.rect(low, y - 7, max(high - low, 1), 14, "interval", tip)
    _dots(drawing, variant, y, x)


def _dots(drawing: Drawing, variant: VariantRates, y: float, x: Callable[[float], float]) -> None:
    for number, value in enumerate(variant.tokens_per_s):
        drawing.circle(x(value), y, 2.6, "dot", f"round {number}: {rate(value)} tokens/s")


def standings_svg(standings: Sequence[Standing], variants: Sequence[VariantRates]) -> Markup | None:
    """tokens/s from zero against KL on a logarithmic axis, with the interval of tokens/s; better is
    up and left. A full dot is a variant that nothing beats; None without standings."""
    if not standings:
        return None
    height = _FRONTIER_TOP + max(_FRONTIER_HEIGHT, len(standings) * _LABEL_PX) + _FRONTIER_AXIS_PX
    texts = _standing_texts(standings, variants)
    about = "; ".join(texts)
    drawing = Drawing(height, "Speed beside error of each variant", about)
    intervals = {variant.variant: variant.interval for variant in variants}
    tops = [standing.tokens_per_s for standing in standings]
    tops += [interval.high for interval in intervals.values() if interval is not None]
    axes = _FrontierAxes(standings, max(tops), height - _FRONTIER_AXIS_PX)
    axes.draw(drawing)
    # From one unbeaten variant to the next slower one: the best speed at each error.
    unbeaten = [standing for standing in standings if not standing.beaten_by]
    for (x1, y1), (x2, y2) in pairwise(map(axes.place, unbeaten)):
        drawing.line(x1, y1, x1, y2, "axis")
        drawing.line(x1, y2, x2, y2, "axis")
    for standing, text in zip(standings, texts, strict=True):
        x, y = axes.place(standing)
        if (interval := intervals.get(standing.variant)) is not None:
            low, high = axes.y(interval.low), axes.y(interval.high)
            drawing.rect(x - 4, high, 8, max(low - high, 1), "interval")
        kind = "hollow" if standing.beaten_by else "dot"
        drawing.circle(x, y, 4, kind, text)
    _labels(drawing, standings, axes)
    return drawing.markup()


def _standing_texts(standings: Sequence[Standing], variants: Sequence[VariantRates]) -> list[str]:
    accuracies = {rates.variant: rates.accuracy for rates in variants}
    texts: list[str] = []
    for standing in standings:
        accuracy = accuracies.get(standing.variant)
        short = "{:.3g}".format
        kl = short(standing.kl) if accuracy is None else accuracy_figure(accuracy, "kl", short)
        texts.append(
            f"{standing.variant}: {rate(standing.tokens_per_s)} tokens/s, KL {kl} nats, "
            f"beaten by {beaten_text(standing.beaten_by)}"
        )
    return texts


class _FrontierAxes:
    """Where a variant's point is: whole powers of ten of KL, tokens/s from 0 to `highest`."""

    def __init__(self, standings: Sequence[Standing], highest: float, bottom: float) -> None:
        powers = [math.log10(max(standing.kl, _SMALLEST_KL)) for standing in standings]
        self._first = math.floor(min(powers))
        self._last = max(math.ceil(max(powers)), self._first + 1)
        self._highest = highest * 1.05
        self._bottom = bottom

    def y(self, tokens_per_s: float) -> float:
        share = min(max(tokens_per_s / self._highest, 0.0), 1.0)
        return self._bottom - share * (self._bottom - _FRONTIER_TOP)

    def place(self, standing: Standing) -> tuple[float, float]:
        return self._x(math.log10(max(standing.kl, _SMALLEST_KL))), self.y(standing.tokens_per_s)

    def draw(self, drawing: Drawing) -> None:
        for power in range(self._first, self._last + 1):
            x = self._x(power)
            drawing.line(x, _FRONTIER_TOP, x, self._bottom, "grid")
            drawing.text(x, self._bottom + 16, f"{10.0**power:.0e}", "dim", "middle")
        for at in ticks(self._highest, 6):
            y, kind = self.y(at), "grid" if at else "axis"
            drawing.line(_FRONTIER_LEFT, y, _FRONTIER_RIGHT, y, kind)
            drawing.text(_FRONTIER_LEFT - 6, y + 4, f"{at:,g}", "dim", "end")
        drawing.text(0, 12, "tokens/s", "dim")
        drawing.text(_FRONTIER_RIGHT, self._bottom + 34, "KL to fp32, nats", "dim", "end")

    def _x(self, power: float) -> float:
        return _FRONTIER_LEFT + (power - self._first) / (self._last - self._first) * _FRONTIER_WIDTH


def _labels(drawing: Drawing, standings: Sequence[Standing], axes: _FrontierAxes) -> None:
    """Names at the right, fastest first, apart from each other, each with a line to its point."""
    left = _FRONTIER_RIGHT + 24
    lowest = _FRONTIER_TOP + max(_FRONTIER_HEIGHT, len(standings) * _LABEL_PX)
    at = -math.inf
    for number, standing in enumerate(standings):
        x, y = axes.place(standing)
        room_below = (len(standings) - 1 - number) * _LABEL_PX
        at = max(min(y, lowest - room_below), at + _LABEL_PX)
        drawing.line(x + 5, y, left - 4, at, "grid")
        kind = "dim" if standing.beaten_by else "strong"
        drawing.text(left, at + 4, cut_middle(standing.variant, _LABEL_LETTERS), kind)
