"""Where the time of a step goes, as one bar per variant with the physical limit marked."""

from collections.abc import Sequence

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, time_ticks
from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.report import WaterfallPart
from decodescope.analyzer.text.formatting import duration, percent
from decodescope.analyzer.vocabulary.words import part_words

_LEFT, _RIGHT = 150.0, 80.0
_PLOT = CHART_WIDTH - _LEFT - _RIGHT
_AXIS_PX, _BAR_PX, _ROW_PX = 22.0, 30.0, 50.0
_LETTER_PX = 6.6

Bar = tuple[str, Sequence[WaterfallPart]]


def waterfalls_svg(bars: Sequence[Bar]) -> Markup:
    """All steps on the scale of the longest."""
    longest = max(_total(parts) for _, parts in bars)
    height = _AXIS_PX + len(bars) * _ROW_PX
    about = ", ".join(f"{name}: {duration(_total(parts))}" for name, parts in bars)
    drawing = Drawing(height, "Where a step's time goes, on one scale", about)
    for at, text in time_ticks(longest):
        x = _LEFT + at / longest * _PLOT
        drawing.line(x, 16, x, height, "grid")
        drawing.text(x + 3, 12, text, "dim")
    for row, (name, parts) in enumerate(bars):
        _bar(drawing, name, parts, _AXIS_PX + row * _ROW_PX, _PLOT / longest)
    return drawing.markup()


def composition_svg(bars: Sequence[Bar]) -> Markup:
    """The same steps, all equally wide, for those too short to see on one scale."""
    height = len(bars) * _ROW_PX
    drawing = Drawing(height, "What each step consists of", "each bar is one step, 100 %")
    for row, (name, parts) in enumerate(bars):
        _bar(drawing, name, parts, row * _ROW_PX, _PLOT / _total(parts))
    return drawing.markup()


def _total(parts: Sequence[WaterfallPart]) -> int:
    return max(sum(part.ns for part in parts), 1)


def _bar(
    drawing: Drawing, name: str, parts: Sequence[WaterfallPart], y: float, px_per_ns: float
) -> None:
    """If kernels beat the limit (a negative part), only the busy time is drawn, and the mark of the
    limit is to its right."""
    total = _total(parts)
    y += 12
    drawing.text(0, y + 13, cut_middle(name, 18), "strong")
    drawing.text(0, y + 27, duration(total), "dim")
    x, limit_ns = _LEFT, None
    lengths = {part.part: part.ns for part in parts}
    for part in parts:
        shown_ns = part.ns
        if part.part == "limit":
            limit_ns = part.ns
            shown_ns += min(lengths.get("kernel_inefficiency", 0), 0)
        width = max(shown_ns, 0) * px_per_ns
        if width > 0:
            _segment(drawing, part, x, y, width, total)
        x += width
    if limit_ns is not None:
        mark = _LEFT + limit_ns * px_per_ns
        drawing.line(mark, y - 5, mark, y + _BAR_PX + 4, "mark")
        drawing.text(mark + 4, y - 3, f"limit {duration(limit_ns)}", "small")


def _segment(
    drawing: Drawing, part: WaterfallPart, x: float, y: float, width: float, total: int
) -> None:
    text = f"{part_words(part.part)} {duration(part.ns)}"
    tip = f"{text}, {percent(part.ns / total)} % of the step"
    drawing.rect(x, y, width, _BAR_PX, f"p-{part.part}", tip)
    if width >= len(text) * _LETTER_PX + 10:
        drawing.text(x + 6, y + _BAR_PX / 2 + 4, text, f"on on-{part.part}")
