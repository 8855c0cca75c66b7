"""Details of a span of time."""

from collections.abc import Iterator

from decodescope.analyzer.formatting import duration
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def span_lines(window: Window, start_ns: int, end_ns: int) -> Iterator[DetailLine]:
    """The length of the span."""
    yield DetailLine("", duration(end_ns - start_ns), "strong")
