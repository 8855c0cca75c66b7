"""A report as tables for a terminal; reads nothing but the `Report`."""

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, plain_text, weights_note
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.views.names import cut_middle
from decodescope.analyzer.views.table_devices import (
    devices_table,
    gaps_table,
    has_streams,
    streams_table,
)
from decodescope.analyzer.views.table_gaps import longest_gaps_table, steps_idle_table
from decodescope.analyzer.views.table_kernels import kernels_table
from decodescope.analyzer.views.table_launches import launches_table
from decodescope.analyzer.views.table_parts import on_cpu, section
from decodescope.analyzer.views.table_ranges import attribution_line, ranges_table
from decodescope.analyzer.views.table_steps import steps_table
from decodescope.analyzer.views.verdict_text import verdict_text
from decodescope.analyzer.views.waterfall_table import waterfall_table

MIN_WIDTH = 60
_FOCUS_ROWS, _OTHER_ROWS = 30, 10


class ReportTable:
    """Renders as tables that fit the width they are given."""

    def __init__(self, report: Report, by: str) -> None:
        self._report = report
        self._by = by

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, MIN_WIDTH)
        report = self._report
        yield _title(report, width)
        yield _verdict(report)
        yield from _health(report)
        if report.waterfall:
            parts = waterfall_table(report.waterfall, width)
            yield from section("Where one profiled step goes", parts)
        if report.devices:
            yield from self._idle(width)
        if report.launches.calls:
            yield from section("Launch calls", launches_table(report.launches, width))
        if report.steps:
            yield from section("Steps", steps_table(report, width))
        yield from self._work(width)

    def _idle(self, width: int) -> RenderResult:
        report = self._report
        yield from section("Devices", devices_table(report, width))
        if has_streams(report):
            yield from section("Threads" if on_cpu(report) else "Streams", streams_table(report))
        yield from section("Idle gaps", gaps_table(report, width))
        if self._by == "gap":
            if report.steps:
                yield from section("Idle by step", steps_idle_table(report, width))
            yield from section("Longest gaps", longest_gaps_table(report, width))

    def _work(self, width: int) -> RenderResult:
        report = self._report
        kernels = _FOCUS_ROWS if self._by == "kernel" else _OTHER_ROWS
        ranges = _FOCUS_ROWS if self._by == "range" else _OTHER_ROWS
        if report.kernels:
            title = "Leaf operators" if on_cpu(report) else "Kernels"
            yield from section(title, kernels_table(report, width, kernels))
        if report.ranges:
            attribution = report.attribution
            line = [attribution_line(report, attribution)] if attribution is not None else []
            yield from section("Ranges", *line, ranges_table(report, width, ranges))


def report_table(report: Report, by: str = "kernel") -> RenderableType:
    """Everything a report says; `by` ("kernel", "range", "gap") chooses what is shown at length."""
    return ReportTable(report, by)


def _title(report: Report, width: int) -> Text:
    source = report.source
    text = Text(cut_middle(plain_text(source.path), width), style="bold")
    text.append(f"\n{source.format} · {count(source.events)} events", style="not bold")
    names = {f"{device.device}": device.name for device in report.devices}
    if on_cpu(report):
        text.append(f"\ndevice: cpu · {plain_text(names['cpu'])}", style="not bold")
    elif names:
        shown = ", ".join(f"{name or 'unnamed'} (GPU {key})" for key, name in names.items())
        text.append(f"\ndevice: {plain_text(shown)}", style="not bold")
    if capture := report.capture:
        text.append(f"\n{capture.model}", style="not bold")
        if note := weights_note(capture.weights):
            text.append(f" ({note})", style="bold yellow")
        text.append(
            f" · {capture.variant} · {capture.dtype} · batch {capture.batch} · "
            f"context {capture.context} · {capture.steps} steps from position {capture.position}",
            style="not bold",
        )
    return text


def _verdict(report: Report) -> Text:
    text = Text("\n").append_text(verdict_text(report.verdict))
    observer = report.observer
    if observer is not None and observer.ratio is not None:
        text.append(
            f"\n  a step takes {duration(observer.unprofiled_step_ns)}, "
            f"{duration(observer.profiled_step_ns)} under the profiler (x{observer.ratio:.2f})",
            style="not bold",
        )
    return text


def _health(report: Report) -> RenderResult:
    health = report.health
    if not health.findings:
        return
    yield ""
    yield Text(f"Trace health: {health.status.replace('_', ' ')}", style="bold")
    for finding in health.findings:
        yield Text(f"  {finding.message}", style="" if health.status == "ok" else "yellow")


def table_text(report: Report, by: str = "kernel", width: int = 100) -> str:
    """The same tables as plain text of a given width."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(ReportTable(report, by))
    return captured.get()
