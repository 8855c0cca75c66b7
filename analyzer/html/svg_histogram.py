"""Histograms over powers of two of nanoseconds as stacked bars, and queue depth along time."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks, time_ticks
from decodescope.analyzer.reports.distributions import Buckets
from decodescope.analyzer.schema.kernel_report import QueueDepth
from decodescope.analyzer.text.formatting import count, duration

HALF_WIDTH = CHART_WIDTH / 2 - 16
_LEFT, _TOP, _PLOT_PX, _FOOT_PX = 8.0, 18.0, 120.0, 22.0
_LABEL_PX, _LABEL_SLOT_PX = 54.0, 70.0
_QUEUE_LEFT, _QUEUE_PX, _QUEUE_FOOT_PX = 46.0, 72.0, 20.0
_QUEUE_FLOOR = 8.0 + _QUEUE_PX
_QUEUE_WIDTH = CHART_WIDTH - _QUEUE_LEFT - 8.0
_TICK_TEXT_PX = 50.0


def histogram_svg(
    title: str, series: Mapping[str, Buckets], bounds: Sequence[int], width: float = HALF_WIDTH
) -> Markup:
    """`series` maps a shape's class name to its (upper bound in ns, count) buckets; `bounds` are
    those of the axis, so that several charts can share one."""
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


def _described(series: Mapping[str, Buckets]) -> str:
    sums = {kind[2:]: sum(found for _, found in buckets) for kind, buckets in series.items()}
    return ", ".join(f"{kind}: {total:,}" for kind, total in sums.items() if total)


def queue_svg(name: str, depth: QueueDepth) -> Markup | None:
    """The largest depth in each part of the window; None if the report has no depths over time or
    nothing was ever queued."""
    parts = depth.over_time
    if not any(parts):
        return None
    top, window_ns = max(parts), depth.bucket_ns * len(parts)
    slot, floor, right = _QUEUE_WIDTH / len(parts), _QUEUE_FLOOR, _QUEUE_LEFT + _QUEUE_WIDTH
    about = (
        f"at most {count(top)} launched ops waited; each step of the outline is the largest depth "
        f"within {duration(depth.bucket_ns)}"
    )
    drawing = Drawing(floor + _QUEUE_FOOT_PX, f"Queue depth of {name} over time", about)
    for value in (at for at in ticks(top, 3) if at == int(at)):
        y = floor - value / top * _QUEUE_PX
        drawing.line(_QUEUE_LEFT, y, right, y, "grid")
        drawing.text(_QUEUE_LEFT - 6, y + 4, count(int(value), 6), "small dim", "end")
    for at, text in time_ticks(window_ns):
        x = _QUEUE_LEFT + at / window_ns * _QUEUE_WIDTH
        drawing.line(x, floor, x, floor + 4, "axis")
        if x < right - _TICK_TEXT_PX:
            drawing.text(x + 3, floor + 14, text, "small dim")
    outline = [(_QUEUE_LEFT, floor)]
    for place, value in enumerate(parts):
        y = floor - value / top * _QUEUE_PX
        outline += [(_QUEUE_LEFT + place * slot, y), (_QUEUE_LEFT + (place + 1) * slot, y)]
    drawing.polygon([*outline, (right, floor)], "h-launches", about)
    drawing.line(_QUEUE_LEFT, floor, right, floor, "axis")
    return drawing.markup()
