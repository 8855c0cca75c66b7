"""Details of a kernel and of one of its launches."""

from collections.abc import Iterator

from decodescope.analyzer.formatting import count, duration, percent
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def kernel_lines(window: Window, name: str) -> Iterator[DetailLine]:
    """The figures of all launches of the kernel."""
    yield DetailLine("", name, "strong")
    for kernel in window.report.kernels:
        if kernel.name == name:
            yield DetailLine("launches", count(kernel.count))
            yield DetailLine("total", f"{duration(kernel.total_ns)}, {percent(kernel.share)} %")
            yield DetailLine("mean", duration(kernel.mean_ns))
            return
    yield DetailLine("", "not in this window", "dim")


def op_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """One op of the trace."""
    trace = window.analysis.trace
    yield DetailLine("", trace.names[int(trace.ops.name[row])], "strong")
    yield DetailLine("took", duration(int(trace.ops.length_ns[row])))
