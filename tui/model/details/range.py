"""Details of one range path, or of the layers of one folded row."""

from collections.abc import Iterator

from decodescope.analyzer.names.names import short_kernels
from decodescope.analyzer.schema.report import RangeReport, Report
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.vocabulary.words import INFERRED_NOTE, ops_word
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.details.roles import range_role_lines
from decodescope.tui.model.view import Window

_KERNELS, _NAME_CELLS = 6, 100
_CERTAINTY = {
    "exact": "exact: launched inside the range",
    "partial": "partial: a graph replay, aligned with a step that ran without the graph",
    "none": "none: the ops of a graph replay that match nothing",
    "inferred": "inferred: by the names of kernels and their order in the step",
}


def range_detail_lines(window: Window, path: str) -> Iterator[DetailLine]:
    """Time, launches, idle time by class and the longest kernels of the range."""
    from decodescope.analyzer.reports.kernel_launches import longest_kernels_within
    from decodescope.analyzer.tables.ranges_table import range_lines as lines_of

    report = window.report
    rows = (row for by_layer in (False, True) for row in lines_of(report, by_layer=by_layer))
    line = next((row for row in rows if row.found.path == path), None)
    yield DetailLine("", path, "strong")
    if line is None:
        yield DetailLine("", "not in this window", "dim")
        return
    node = line.found
    if node.kind == "operator":
        yield DetailLine("", "an operator of the framework: the host opened no range here", "dim")
    if node.kind == "inferred":
        yield DetailLine("", INFERRED_NOTE, "dim")
    yield from range_role_lines(window, path, inferred=node.kind == "inferred")
    time = "attributed" if report.overlapping else "time" if report.on_cpu else "GPU time"
    yield DetailLine(time, f"{duration(line.time_ns)}, {percent(line.share)} % of busy time")
    if report.overlapping:
        yield DetailLine("GPU time", f"{duration(node.gpu_ns)}, where ops overlap counted in each")
    if len(line.each_ns) > 1:
        shortest, longest = min(line.each_ns), max(line.each_ns)
        spread = f"{duration(shortest)} to {duration(longest)}"
        yield DetailLine("ranges", f"{len(line.each_ns)}, each {duration(line.mean_ns)}, {spread}")
    if len(report.steps) > 1:
        yield DetailLine("per step", duration(line.time_ns / len(report.steps)))
    yield DetailLine("launches", count(node.launch_calls))
    yield DetailLine(ops_word(report), count(node.gpu_ops))
    yield from _idle(report, node)
    matched = "" if node.matched is None else f"; {percent(node.matched)} % of its ops match"
    certainty = _CERTAINTY["inferred" if node.kind == "inferred" else node.confidence]
    yield DetailLine("confidence", certainty + matched)
    yield DetailLine("", "longest operators" if report.on_cpu else "longest kernels", "dim")
    kernels = longest_kernels_within(window.analysis, path, _KERNELS)
    short = short_kernels((name for name, _, _ in kernels), _NAME_CELLS)
    for name, calls, ns in kernels:
        share = f", {percent(ns / line.time_ns)} %" if line.time_ns else ""
        yield DetailLine("", f"{duration(ns)}{share}, {count(calls)}: {short[name]}")


def _idle(report: Report, node: RangeReport) -> Iterator[DetailLine]:
    """The idle time that its ops ended, by class."""
    idle_ns = sum(device.idle_ns for device in report.devices)
    share = f", {percent(node.idle_ns / idle_ns)} % of all idle time" if idle_ns else ""
    yield DetailLine("idle", f"{duration(node.idle_ns)}{share}")
    for name, ns in sorted(node.gaps.items(), key=lambda class_and_ns: -class_and_ns[1]):
        yield DetailLine(f"  {name}", duration(ns))
