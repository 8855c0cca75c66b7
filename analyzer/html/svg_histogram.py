"""How many values fell into each power of two of nanoseconds, as stacked bars."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from decodescope.analyzer.formatting import count, duration
from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing

Buckets = Sequence[tuple[int, int]]
HALF_WIDTH = CHART_WIDTH / 2 - 16
_LEFT, _TOP, _PLOT_PX, _FOOT_PX = 8.0, 18.0, 120.0, 22.0
_LABEL_PX, _LABEL_SLOT_PX = 54.0, 70.0


def histogram_svg(
    title: str, series: Mapping[str, Buckets], bounds: Sequence[int], width: float = HALF_WIDTH
) -> Markup:
    """`series` maps a shape's class name to its (upper bound in ns, count) buckets; `bounds` are
    those of the axis, so that several charts share one."""
    drawing = Drawing(_TOP + _PLOT_PX + _FOOT_PX, title, _described(series), width)
    counts = {kind: dict(buckets) for kind, buckets in series.items()}
    highest = max((sum(by.get(bound, 0) for by in counts.values()) for bound in bounds), default=0)
    slot = (width - 2 * _LEFT) / max(len(bounds), 1)
    floor = _TOP + _PLOT_PX
    every = math.ceil(_LABEL_SLOT_PX / slot)
    for place, bound in enumerate(bounds):
        x, y, total = _LEFT + place * slot, floor, 0
        for kind, by in counts.items():
            found = by.get(bound, 0)
            if found:
                height = max(found / highest * _PLOT_PX, 1.0)
                y, total = y - height, total + found
                tip = f"{kind[2:]}: {found:,} of up to {duration(bound)}"
                drawing.rect(x + 1, y, slot - 2, height, kind, tip)
        if total:
            drawing.text(x + slot / 2, y - 4, count(total, 5), "small", "middle")
        if place % every == 0:
            middle = min(max(x + slot / 2, _LABEL_PX / 2), width - _LABEL_PX / 2)
            drawing.text(middle, floor + 14, f"≤ {duration(bound)}", "small dim", "middle")
    drawing.line(_LEFT, floor, width - _LEFT, floor, "axis")
    return drawing.markup()


def shared_bounds(histograms: Sequence[Buckets]) -> list[int]:
    """All powers of two from the smallest to the largest bound that occurs; empty without any."""
    found = [bound for buckets in histograms for bound, _ in buckets]
    if not found:
        return []
    bounds = [min(found)]
    while bounds[-1] < max(found):
        bounds.append(bounds[-1] * 2)
    return bounds


def _described(series: Mapping[str, Buckets]) -> str:
    sums = {kind[2:]: sum(found for _, found in buckets) for kind, buckets in series.items()}
    return ", ".join(f"{kind}: {total:,}" for kind, total in sums.items() if total)
