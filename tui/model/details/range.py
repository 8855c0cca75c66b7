"""Details of one range path."""

from collections.abc import Iterator

from decodescope.analyzer.formatting import count, duration
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def range_lines(window: Window, path: str) -> Iterator[DetailLine]:
    """The figures of the range."""
    yield DetailLine("", path, "strong")
    for found in window.report.ranges:
        if found.path == path:
            yield DetailLine("GPU time", duration(found.gpu_ns))
            yield DetailLine("launches", count(found.launch_calls))
            yield DetailLine("idle", duration(found.idle_ns))
            return
    yield DetailLine("", "not in this window", "dim")
