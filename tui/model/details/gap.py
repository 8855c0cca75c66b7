"""Details of one gap."""

from collections.abc import Iterator

from decodescope.analyzer.formatting import duration
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def gap_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """The gap's length and the ops around it."""
    analysis = window.analysis
    trace, gaps = analysis.trace, analysis.gaps
    yield DetailLine("", duration(int(gaps.length_ns[row])), "strong")
    yield DetailLine("after", trace.names[int(trace.ops.name[gaps.prev[row]])])
    yield DetailLine("before", trace.names[int(trace.ops.name[gaps.next[row]])])
