"""Charts of a step's time: its parts beside the limit, its roles, histograms, queue depth."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks, time_ticks
from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.reports.distributions import Buckets, shared_bounds
from decodescope.analyzer.schema.answer import Answer, AnswerPart
from decodescope.analyzer.schema.kernel_report import LaunchReport, QueueDepth
from decodescope.analyzer.tables.kernels_table import launch_times_table
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.vocabulary.answer_words import limit_words
from decodescope.analyzer.vocabulary.words import part_words

_BARS_LEFT, _RIGHT = 150.0, 80.0
_PLOT = CHART_WIDTH - _BARS_LEFT - _RIGHT
_BARS_AXIS_PX, _BAR_PX, _BARS_ROW_PX = 22.0, 30.0, 50.0
_LETTER_PX = 6.6
Captioned = tuple[str, Markup]
HALF_WIDTH = CHART_WIDTH / 2 - 16
_HISTOGRAM_LEFT, _HISTOGRAM_TOP, _HISTOGRAM_PX, _HISTOGRAM_FOOT_PX = 8.0, 18.0, 120.0, 22.0
_HISTOGRAM_HEIGHT = _HISTOGRAM_TOP + _HISTOGRAM_PX + _HISTOGRAM_FOOT_PX
_LABEL_PX, _LABEL_SLOT_PX = 54.0, 70.0
_QUEUE_LEFT, _QUEUE_PX, _QUEUE_FOOT_PX = 46.0, 72.0, 20.0
_QUEUE_FLOOR = 8.0 + _QUEUE_PX
_QUEUE_WIDTH = CHART_WIDTH - _QUEUE_LEFT - 8.0
_TICK_TEXT_PX = 50.0
_LAUNCHES_WIDTH = 362.0


def bars_svg(answers: Mapping[str, Answer], *, one_scale: bool = True) -> Markup:
    """The step of each answer as a bar of its parts: all on the scale of the longest, or all
    equally wide, for those too short to see on one scale."""
    longest = max(map(_total, answers.values()))
    title, about, top = "What each step consists of", "each bar is one step, 100 %", 0.0
    if one_scale:
        title, top = "Where a step's time goes, on one scale", _BARS_AXIS_PX
        about = ", ".join(f"{name}: {duration(_total(own))}" for name, own in answers.items())
    height = top + len(answers) * _BARS_ROW_PX
    drawing = Drawing(height, title, about)
    for at, text in time_ticks(longest) if one_scale else ():
        x = _BARS_LEFT + at / longest * _PLOT
        drawing.line(x, 16, x, height, "grid")
        drawing.text(x + 3, 12, text, "dim")
    for row, (name, answer) in enumerate(answers.items()):
        scale_ns = longest if one_scale else _total(answer)
        _bar(drawing, name, answer, top + row * _BARS_ROW_PX, _PLOT / scale_ns)
    return drawing.markup()


def _total(answer: Answer) -> int:
    return max(answer.whole_ns, 1)


def _bar(drawing: Drawing, name: str, answer: Answer, y: float, px_per_ns: float) -> None:
    """The parts of a step from left to right, in the order of the time over the limit, and a mark
    at the limit of the whole step."""
    total = _total(answer)
    y += 12
    drawing.text(0, y + 13, cut_middle(name, 18), "strong")
    drawing.text(0, y + 27, duration(total), "dim")
    x = _BARS_LEFT
    for part in answer.parts:
        width = part.ns * px_per_ns
        if width > 0:
            _part_segment(drawing, part, x, y, width, total)
        x += width
    if answer.limit_ns is not None:
        mark = _BARS_LEFT + answer.limit_ns * px_per_ns
        drawing.line(mark, y - 5, mark, y + _BAR_PX + 4, "mark")
        drawing.text(mark + 4, y - 3, limit_words(answer), "small")


def _part_segment(
    drawing: Drawing, part: AnswerPart, x: float, y: float, width: float, total: int
) -> None:
    text = f"{part_words(part.part)} {duration(part.ns)}"
    tip = f"{text}, {percent(part.ns / total)} % of the step"
    drawing.rect(x, y, width, _BAR_PX, f"p-{part.part}", tip)
    if width >= len(text) * _LETTER_PX + 10:
        drawing.text(x + 6, y + _BAR_PX / 2 + 4, text, f"on on-{part.part}")


def histogram_svg(
    title: str, series: Mapping[str, Buckets], bounds: Sequence[int], width: float = HALF_WIDTH
) -> Markup:
    """`series` maps a shape's class name to its (upper bound in ns, count) buckets; `bounds` are
    those of the axis, so that several charts can share one."""
    drawing = Drawing(_HISTOGRAM_HEIGHT, title, _described(series), width)
    counts = {kind: dict(buckets) for kind, buckets in series.items()}
    highest = max((sum(by.get(bound, 0) for by in counts.values()) for bound in bounds), default=0)
    slot = (width - 2 * _HISTOGRAM_LEFT) / max(len(bounds), 1)
    floor = _HISTOGRAM_TOP + _HISTOGRAM_PX
    every = math.ceil(_LABEL_SLOT_PX / slot)
    for place, bound in enumerate(bounds):
        x, y, total = _HISTOGRAM_LEFT + place * slot, floor, 0
        for kind, by in counts.items():
            bucket_count = by.get(bound, 0)
            if bucket_count:
                height = max(bucket_count / highest * _HISTOGRAM_PX, 1.0)
                y, total = y - height, total + bucket_count
                tip = f"{kind[2:]}: {bucket_count:,} of up to {duration(bound)}"
                drawing.rect(x + 1, y, slot - 2, height, kind, tip)
        if total:
            drawing.text(x + slot / 2, y - 4, count(total, 5), "small", "middle")
        if place % every == 0:
            middle = min(max(x + slot / 2, _LABEL_PX / 2), width - _LABEL_PX / 2)
            drawing.text(middle, floor + 14, f"≤ {duration(bound)}", "small dim", "middle")
    drawing.line(_HISTOGRAM_LEFT, floor, width - _HISTOGRAM_LEFT, floor, "axis")
    return drawing.markup()


def _described(series: Mapping[str, Buckets]) -> str:
    sums = {
        kind[2:]: sum(bucket_count for _, bucket_count in buckets)
        for kind, buckets in series.items()
    }
    return ", ".join(f"{kind}: {total:,}" for kind, total in sums.items() if total)


def queue_svg(name: str, depth: QueueDepth | None) -> Markup | None:
    """The largest depth in each part of the window; None if it is not known over time, or nothing
    was ever queued."""
    if depth is None or not any(depth.over_time):
        return None
    parts = depth.over_time
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


def launches_svg(name: str, launches: LaunchReport) -> list[Captioned]:
    """How many launch calls took how long, for each of their times that is known."""
    return [
        (
            row.name,
            histogram_svg(
                f"{row.name} of {name}",
                {"h-launches": row.times.histogram},
                shared_bounds([row.times.histogram]),
                _LAUNCHES_WIDTH,
            ),
        )
        for row in launch_times_table(launches).rows
        if row.times is not None and row.times.histogram
    ]
