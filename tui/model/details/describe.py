"""Everything about a pick, as lines: one file for each kind of pick."""

from collections.abc import Iterable

from decodescope.tui.model.details.gap import gap_lines
from decodescope.tui.model.details.kernel import kernel_lines, op_lines
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.details.overview import overview_lines
from decodescope.tui.model.details.range import range_lines
from decodescope.tui.model.details.span import span_lines
from decodescope.tui.model.picks import (
    GapPick,
    KernelPick,
    OpPick,
    RangePick,
    Selection,
    SpanPick,
)
from decodescope.tui.model.view import Window


def describe(selection: Selection, window: Window) -> tuple[str, Iterable[DetailLine]]:
    """The title and the lines of the details of `selection`."""
    match selection.pick:
        case KernelPick(name):
            return "Kernel", kernel_lines(window, name, selection.within)
        case OpPick(row):
            return "Launch", op_lines(window, row)
        case GapPick(row):
            return "Gap", gap_lines(window, row)
        case RangePick(path):
            return "Range", range_lines(window, path)
        case SpanPick(start_ns, end_ns):
            return "Span", span_lines(window, start_ns, end_ns)
    if selection.within is not None:
        return "Range", range_lines(window, selection.within)
    return "Verdict", overview_lines(window)
