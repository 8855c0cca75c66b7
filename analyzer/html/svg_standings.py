"""Speed beside error: one point a variant, and the line of those that no other one beats."""

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks
from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.comparison_report import Standing, VariantRates
from decodescope.analyzer.text.formatting import rate
from decodescope.analyzer.vocabulary.words import beaten_text

_LEFT, _TOP, _AXIS_PX = 70.0, 26.0, 40.0
_LABELS_PX, _LABEL_PX, _LABEL_LETTERS = 270.0, 15.0, 36
_WIDTH = CHART_WIDTH - _LEFT - _LABELS_PX
_HEIGHT = 300.0
# KL below this is rounding of the float64 sums; zero has no logarithm.
_SMALLEST_KL = 1e-12


def standings_svg(standings: Sequence[Standing], variants: Sequence[VariantRates]) -> Markup | None:
    """tokens/s from zero against KL on a logarithmic axis, with the interval of tokens/s; better is
    up and left. A full dot is a variant that nothing beats; None without standings."""
    if not standings:
        return None
    height = _TOP + max(_HEIGHT, len(standings) * _LABEL_PX) + _AXIS_PX
    about = "; ".join(
        f"{found.variant}: {rate(found.tokens_per_s)} tokens/s, KL {found.kl:.3g}, beaten by "
        f"{beaten_text(found.beaten_by)}"
        for found in standings
    )
    drawing = Drawing(height, "Speed beside error of each variant", about)
    intervals = {one.variant: one.interval for one in variants}
    tops = [found.tokens_per_s for found in standings]
    tops += [found.high for found in intervals.values() if found is not None]
    axes = _Axes(standings, max(tops), height - _AXIS_PX)
    axes.draw(drawing)
    _frontier_line(drawing, [found for found in standings if not found.beaten_by], axes)
    for found in standings:
        x, y = axes.place(found)
        if (interval := intervals.get(found.variant)) is not None:
            low, high = axes.y(interval.low), axes.y(interval.high)
            drawing.rect(x - 4, high, 8, max(low - high, 1), "interval")
        kind = "hollow" if found.beaten_by else "dot"
        tip = f"{found.variant}: {rate(found.tokens_per_s)} tokens/s, KL {found.kl:.3g} nats"
        drawing.circle(x, y, 4, kind, f"{tip}, beaten by {beaten_text(found.beaten_by)}")
    _labels(drawing, standings, axes)
    return drawing.markup()


class _Axes:
    """Where a variant's point is: whole powers of ten of KL, tokens/s from 0 to `highest`."""

    def __init__(self, standings: Sequence[Standing], highest: float, bottom: float) -> None:
        powers = [math.log10(max(found.kl, _SMALLEST_KL)) for found in standings]
        self._first = math.floor(min(powers))
        self._last = max(math.ceil(max(powers)), self._first + 1)
        self._highest = highest * 1.05
        self._bottom = bottom

    def y(self, tokens_per_s: float) -> float:
        share = min(max(tokens_per_s / self._highest, 0.0), 1.0)
        return self._bottom - share * (self._bottom - _TOP)

    def place(self, found: Standing) -> tuple[float, float]:
        return self._x(math.log10(max(found.kl, _SMALLEST_KL))), self.y(found.tokens_per_s)

    def draw(self, drawing: Drawing) -> None:
        for power in range(self._first, self._last + 1):
            x = self._x(power)
            drawing.line(x, _TOP, x, self._bottom, "grid")
            drawing.text(x, self._bottom + 16, f"{10.0**power:.0e}", "dim", "middle")
        for at in ticks(self._highest, 6):
            drawing.line(_LEFT, self.y(at), _LEFT + _WIDTH, self.y(at), "grid" if at else "axis")
            drawing.text(_LEFT - 6, self.y(at) + 4, f"{at:,g}", "dim", "end")
        drawing.text(0, 12, "tokens/s", "dim")
        drawing.text(_LEFT + _WIDTH, self._bottom + 34, "KL to fp32, nats", "dim", "end")

    def _x(self, power: float) -> float:
        return _LEFT + (power - self._first) / (self._last - self._first) * _WIDTH


def _frontier_line(drawing: Drawing, unbeaten: Sequence[Standing], axes: _Axes) -> None:
    """Steps from one unbeaten variant to the next slower one: the best speed at each error."""
    for (x1, y1), (x2, y2) in pairwise(axes.place(found) for found in unbeaten):
        drawing.line(x1, y1, x1, y2, "axis")
        drawing.line(x1, y2, x2, y2, "axis")


def _labels(drawing: Drawing, standings: Sequence[Standing], axes: _Axes) -> None:
    """Names at the right, fastest first as the points are, apart from each other, each with a line
    to its point."""
    left = _LEFT + _WIDTH + 24
    lowest = _TOP + max(_HEIGHT, len(standings) * _LABEL_PX)
    at = -math.inf
    for number, found in enumerate(standings):
        x, y = axes.place(found)
        room_below = (len(standings) - 1 - number) * _LABEL_PX
        at = max(min(y, lowest - room_below), at + _LABEL_PX)
        drawing.line(x + 5, y, left - 4, at, "grid")
        kind = "dim" if found.beaten_by else "strong"
        drawing.text(left, at + 4, cut_middle(found.variant, _LABEL_LETTERS), kind)
