"""A report as tables for a terminal."""

from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import count, duration, weights_note
from decodescope.analyzer.views.idle_tables import (
    communication_table,
    devices_table,
    gaps_table,
    longest_gaps_table,
    steps_idle_table,
    streams_table,
)
from decodescope.analyzer.views.interruption_table import interruption_parts
from decodescope.analyzer.views.structure_tables import cost_line, layers_line, roles_table
from decodescope.analyzer.views.table_parts import (
    Fitted,
    section,
    verdict_text,
    waterfall_section,
)
from decodescope.analyzer.views.waiting_table import waiting_sections
from decodescope.analyzer.views.work_tables import (
    attribution_line,
    kernels_table,
    launches_table,
    ranges_table,
    step_kinds_table,
    steps_table,
)
from decodescope.analyzer.vocabulary.words import device_words, overlap_words

_FOCUS_ROWS, _OTHER_ROWS = 30, 10


def report_table(report: Report, by: str = "kernel") -> RenderableType:
    """Everything a report says, in tables that fit the width of the terminal; `by` ("kernel",
    "range", "gap") chooses what is shown at length."""
    return Fitted(partial(_parts, report, by))


def _parts(report: Report, by: str, width: int) -> RenderResult:
    yield _title(report, width)
    yield _verdict(report)
    yield from _health(report)
    yield from waterfall_section(report.waterfall, width)
    if report.interruptions and report.steady is not None:
        yield from section("Interruptions", *interruption_parts(report, report.steady, width))
    if report.devices:
        yield from _idle(report, by, width)
    if report.launches.calls:
        yield from section("Launch calls", launches_table(report.launches, width))
    if report.steps:
        yield from section("Steps", steps_table(report, width))
    # The title of a capture of ours says what its steps are.
    if report.capture is None and any(row.kind != "unknown" for row in report.step_kinds):
        yield from section("Kinds of steps", step_kinds_table(report, width))
    if report.structure is not None and report.structure.layers:
        line = [layers_line(report.structure)]
        if report.step_cost is not None:
            line.append(cost_line(report.step_cost))
        yield from section("Parts of a step", *line, roles_table(report.roles, width))
    if report.kernels:
        rows = _FOCUS_ROWS if by == "kernel" else _OTHER_ROWS
        title = "Leaf operators" if report.on_cpu else "Kernels"
        line = [Text(words, style="dim")] if (words := overlap_words(report)) else []
        yield from section(title, *line, kernels_table(report, width, rows))
    if report.ranges:
        rows = _FOCUS_ROWS if by == "range" else _OTHER_ROWS
        attribution = report.attribution
        line = [attribution_line(report, attribution)] if attribution is not None else []
        yield from section("Ranges", *line, ranges_table(report, width, rows))


def _title(report: Report, width: int) -> Text:
    source = report.source
    text = Text(cut_middle(source.path, width), style="bold")
    text.append(f"\n{source.format} · {count(source.events)} events", style="not bold")
    names = {device_words(device.device): device.name for device in report.devices}
    if report.on_cpu:
        text.append(f"\ndevice: cpu · {names['cpu']}", style="not bold")
    elif names:
        shown = ", ".join(f"{name or 'unnamed'} ({key})" for key, name in names.items())
        text.append(f"\ndevice: {shown}", style="not bold")
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
    if health.findings:
        style = "" if health.status == "ok" else "yellow"
        found = (Text(f"  {finding.message}", style=style) for finding in health.findings)
        yield from section(f"Trace health: {health.status.replace('_', ' ')}", *found)


def _idle(report: Report, by: str, width: int) -> RenderResult:
    yield from section("Devices", devices_table(report, width))
    if any(len(device.streams) > 1 for device in report.devices):
        yield from section("Threads" if report.on_cpu else "Streams", streams_table(report))
    if any(device.communication_ns for device in report.devices):
        yield from section("Communication", communication_table(report))
    if report.waiting is not None:
        yield from waiting_sections(report.waiting, width)
    yield from section("Idle gaps", gaps_table(report, width))
    if by == "gap":
        if report.steps:
            yield from section("Idle by step", steps_idle_table(report, width))
        yield from section("Longest gaps", longest_gaps_table(report, width))
