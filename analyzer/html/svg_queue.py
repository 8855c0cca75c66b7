"""How deep the queue of launched ops was along the window, as an area."""

from markupsafe import Markup

from decodescope.analyzer.formatting import count, duration
from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks, time_ticks
from decodescope.analyzer.schema.report import QueueDepth

_LEFT, _TOP, _PLOT_PX, _FOOT_PX = 46.0, 8.0, 72.0, 20.0
_PLOT_WIDTH = CHART_WIDTH - _LEFT - 8.0
_TICK_TEXT_PX = 50.0


def queue_svg(name: str, depth: QueueDepth) -> Markup | None:
    """The largest depth of each part, from the start of the windows on; None where the report has
    no depths over time or nothing was ever queued."""
    parts = depth.over_time
    if not any(parts):
        return None
    top, slot, floor = max(parts), _PLOT_WIDTH / len(parts), _TOP + _PLOT_PX
    about = (
        f"at most {count(top)} launched ops waited; each step of the outline is the largest depth "
        f"within {duration(depth.bucket_ns)}"
    )
    drawing = Drawing(floor + _FOOT_PX, f"Queue depth of {name} over time", about)
    _axes(drawing, top, depth.bucket_ns * len(parts))
    outline = [(_LEFT, floor)]
    for place, value in enumerate(parts):
        y = floor - value / top * _PLOT_PX
        outline += [(_LEFT + place * slot, y), (_LEFT + (place + 1) * slot, y)]
    drawing.polygon([*outline, (_LEFT + _PLOT_WIDTH, floor)], "h-launches", about)
    drawing.line(_LEFT, floor, _LEFT + _PLOT_WIDTH, floor, "axis")
    return drawing.markup()


def _axes(drawing: Drawing, top: int, window_ns: int) -> None:
    floor = _TOP + _PLOT_PX
    for value in (at for at in ticks(top, 3) if at == int(at)):
        y = floor - value / top * _PLOT_PX
        drawing.line(_LEFT, y, _LEFT + _PLOT_WIDTH, y, "grid")
        drawing.text(_LEFT - 6, y + 4, count(int(value), 6), "small dim", "end")
    for at, text in time_ticks(window_ns):
        x = _LEFT + at / window_ns * _PLOT_WIDTH
        drawing.line(x, floor, x, floor + 4, "axis")
        if x < _LEFT + _PLOT_WIDTH - _TICK_TEXT_PX:
            drawing.text(x + 3, floor + 14, text, "small dim")
