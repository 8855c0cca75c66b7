"""Measured rates with their intervals, and the ratios between variants."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks
from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.comparison_report import (
    ChangeVerdict,
    Pair,
    SpeedRatio,
    VariantRates,
)
from decodescope.analyzer.text.formatting import rate
from decodescope.analyzer.vocabulary.words import speed_text

_LEFT, _ROW_PX, _AXIS_PX = 150.0, 34.0, 24.0
_RATES_PX, _SPREAD_LEFT = 470.0, 800.0
_SPREAD_PX = CHART_WIDTH - _SPREAD_LEFT - 24
_RATIO_LEFT, _RATIO_PX, _MIN_RATIO = 330.0, 480.0, 1e-6


def rates_svg(variants: Sequence[VariantRates]) -> Markup:
    """Left: tokens/s from zero, a dot per round. Right: the same dots and the interval of the mean,
    as deviation from the variant's own mean, which shows the noise."""
    height = _AXIS_PX + len(variants) * _ROW_PX
    about = ", ".join(f"{found.variant}: {rate(found.mean)}" for found in variants)
    drawing = Drawing(height, "tokens/s of each variant, a dot per round", about)
    highest = max([1e-9, *(value for found in variants for value in found.tokens_per_s)])
    spread = max([1e-6, *(abs(value) for found in variants for value in _deviations(found))])
    for at in ticks(highest, 6):
        x = _LEFT + at / highest * _RATES_PX
        drawing.line(x, 16, x, height, "grid")
        drawing.text(x + 3, 12, f"{at:,g}", "dim")
    _spread_axis(drawing, spread, height)
    for row, found in enumerate(variants):
        y = _AXIS_PX + (row + 0.5) * _ROW_PX
        drawing.text(0, y + 4, cut_middle(found.variant, 18), "strong")
        _rate_bar(drawing, found, y, highest)
        _spread_row(drawing, found, y, spread)
    return drawing.markup()


def _deviations(found: VariantRates) -> list[float]:
    """The rounds and the ends of the interval, relative to the mean."""
    values = list(found.tokens_per_s)
    if found.interval is not None:
        values += [found.interval.low, found.interval.high]
    return [value / found.mean - 1 for value in values] if found.mean else []


def _rate_bar(drawing: Drawing, found: VariantRates, y: float, highest: float) -> None:
    mean = found.mean or 0.0
    width = mean / highest * _RATES_PX
    drawing.rect(_LEFT, y - 7, width, 14, "bar", f"mean {rate(mean)} tokens/s")
    _dots(drawing, found, y, lambda value: _LEFT + value / highest * _RATES_PX)
    farthest = max([mean, *found.tokens_per_s]) / highest * _RATES_PX
    drawing.text(_LEFT + farthest + 8, y + 4, rate(mean), "strong")


def _spread_axis(drawing: Drawing, spread: float, height: float) -> None:
    middle = _SPREAD_LEFT + _SPREAD_PX / 2
    drawing.line(middle, 16, middle, height, "axis")
    drawing.text(middle, 12, "mean", "dim", "middle")
    for sign, anchor in ((-1, "start"), (1, "end")):
        text = f"{'+' if sign > 0 else '-'}{spread * 100:.2g} %"
        drawing.text(middle + sign * _SPREAD_PX / 2, 12, text, "dim", anchor)


def _spread_row(drawing: Drawing, found: VariantRates, y: float, spread: float) -> None:
    def x(value: float) -> float:
        relative = value / found.mean - 1 if found.mean else 0.0
        return _SPREAD_LEFT + _SPREAD_PX / 2 * (1 + relative / spread)

    if found.interval is not None:
        low, high = x(found.interval.low), x(found.interval.high)
        tip = f"{rate(found.interval.low)} to {rate(found.interval.high)} tokens/s"
        drawing.rect(low, y - 7, max(high - low, 1), 14, "interval", tip)
    _dots(drawing, found, y, x)


def _dots(drawing: Drawing, found: VariantRates, y: float, x: Callable[[float], float]) -> None:
    for number, value in enumerate(found.tokens_per_s):
        drawing.circle(x(value), y, 2.6, "dot", f"round {number}: {rate(value)} tokens/s")


def ratios_svg(pairs: Sequence[Pair]) -> Markup | None:
    """tokens/s of one variant over another's with its interval, on a logarithmic axis around 1;
    None if nothing was timed."""
    timed = [(pair, pair.speed) for pair in pairs if pair.speed is not None]
    timed = [(pair, speed) for pair, speed in timed if speed.value > 0]
    if not timed:
        return None
    low, high = _ratio_range([speed for _, speed in timed])

    def x(ratio: float) -> float:
        place = math.log(max(ratio, low) / low) / math.log(high / low)
        return _RATIO_LEFT + place * _RATIO_PX

    height = _AXIS_PX + len(timed) * _ROW_PX
    about = "; ".join(f"{pair.other} over {pair.base}: {speed_text(s)}" for pair, s in timed)
    drawing = Drawing(height, "Ratios of tokens/s with their intervals", about)
    for ratio in _ratio_ticks(low, high):
        drawing.line(x(ratio), 16, x(ratio), height, "axis" if ratio == 1 else "grid")
        drawing.text(x(ratio), 12, f"x{ratio:g}", "dim", "middle")
    for row, (pair, speed) in enumerate(timed):
        y = _AXIS_PX + (row + 0.5) * _ROW_PX
        named = f"{cut_middle(pair.other, 20)} over {cut_middle(pair.base, 20)}"
        drawing.text(0, y + 4, named, "strong")
        if speed.interval is not None:
            left, right = x(speed.interval.low), x(speed.interval.high)
            drawing.rect(left, y - 8, max(right - left, 1), 16, "interval")
        _marker(drawing, x(speed.value), y, speed.verdict)
        drawing.text(_RATIO_LEFT + _RATIO_PX + 20, y + 4, speed_text(speed))
    return drawing.markup()


def _ratio_range(speeds: Sequence[SpeedRatio]) -> tuple[float, float]:
    """A range that contains 1, every ratio and every interval, with a margin."""
    ends = [1.0, *(speed.value for speed in speeds)]
    for speed in speeds:
        if speed.interval is not None:
            ends += [max(speed.interval.low, _MIN_RATIO), max(speed.interval.high, _MIN_RATIO)]
    return min(ends) / 1.03, max(ends) * 1.03


def _ratio_ticks(low: float, high: float) -> list[float]:
    """1, and round ratios on either side: 1, 2 and 5 times powers of ten, or equal steps if the
    range is narrow."""
    if high / low >= 4:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    else:
        marks = ticks(high - low, 6)
        step = marks[1] if len(marks) > 1 else high - low
        found = [1 + step * index for index in range(-6, 7)]
    return [round(ratio, 9) for ratio in found if low <= ratio <= high]


def _marker(drawing: Drawing, x: float, y: float, verdict: ChangeVerdict) -> None:
    """A triangle points in the direction of the verdict, a circle means that there is none."""
    if verdict in ("faster", "slower"):
        tip = 6 if verdict == "faster" else -6
        drawing.polygon([(x - tip, y - 6), (x + tip, y), (x - tip, y + 6)], "dot")
    else:
        drawing.circle(x, y, 4, "dot" if verdict == "no_difference_shown" else "hollow")
