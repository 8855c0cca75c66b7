"""A report as tables for a terminal; reads nothing but the `Report`."""

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import (
    UNKNOWN,
    count,
    duration,
    number,
    percent,
    plain_text,
    weights_note,
)
from decodescope.analyzer.kernel_names import cut_middle, shorten_kernel
from decodescope.analyzer.report import DeviceReport, GapTotal, LaunchReport, Percentiles, Report

MIN_WIDTH = 60
_ROOMY_WIDTH = 100
_BAR_CELLS = 16
_FOCUS_ROWS, _OTHER_ROWS, _STEP_ROWS = 30, 10, 10


class ReportTable:
    """Renders as tables that fit the width they are given."""

    def __init__(self, report: Report, by: str) -> None:
        self._report = report
        self._by = by

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, MIN_WIDTH)
        report, by = self._report, self._by
        yield _title(report, width)
        yield _verdict(report)
        yield from _health(report)
        if report.devices:
            yield from _section("Devices", _devices(report, width))
            yield from _section("Idle gaps", _gaps(report))
            if by == "gap":
                yield from _section("Longest gaps", _longest_gaps(report, width))
        if report.launches.calls:
            yield from _section("Launch calls", _launches(report.launches, width))
        if report.steps:
            yield from _section("Steps", _steps(report, width))
        kernels = _FOCUS_ROWS if by == "kernel" else _OTHER_ROWS
        ranges = _FOCUS_ROWS if by == "range" else _OTHER_ROWS
        if report.kernels:
            title = "Leaf operators" if _on_cpu(report) else "Kernels"
            yield from _section(title, _kernels(report, width, kernels))
        if report.ranges:
            yield from _section("Ranges", _ranges(report, width, ranges))


def report_table(report: Report, by: str = "kernel") -> RenderableType:
    """Everything a report says; `by` ("kernel", "range", "gap") chooses what is shown at length."""
    return ReportTable(report, by)


def _on_cpu(report: Report) -> bool:
    return any(device.device == "cpu" for device in report.devices)


def _ops(report: Report) -> str:
    return "operators" if _on_cpu(report) else "GPU ops"


def _span(report: Report) -> str:
    return "op span" if _on_cpu(report) else "GPU span"


def _section(title: str, content: RenderableType) -> RenderResult:
    yield ""
    yield Text(title, style="bold")
    yield content


def _plain_table(*columns: str, left: int = 1) -> Table:
    """A table without lines; the first `left` columns are text, the rest numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        justify = "left" if index < left else "right"
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def _title(report: Report, width: int) -> Text:
    source = report.source
    text = Text(cut_middle(plain_text(source.path), width), style="bold")
    text.append(f"\n{source.format} · {count(source.events)} events", style="not bold")
    names = {f"{device.device}": device.name for device in report.devices}
    if _on_cpu(report):
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
    bound = report.verdict.bound
    title = f"bound: {bound}" if bound in ("mixed", "unknown") else f"{bound}-bound"
    text = Text(f"\n{title}", style="bold")
    text.append("".join(f"\n  {reason}" for reason in report.verdict.because), style="not bold")
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


def _devices(report: Report, width: int) -> Table:
    table = _plain_table(
        "device", _ops(report), "kernels", "window", "busy", "idle", "idle %", "overlap", "floor"
    )
    for device in report.devices:
        share = device.idle_ns / device.window_ns if device.window_ns else None
        floor = duration(device.kernel_floor_ns)
        table.add_row(
            f"{device.device}",
            *(count(device.gpu_ops), count(device.kernels)),
            *(duration(ns) for ns in (device.window_ns, device.busy_ns, device.idle_ns)),
            *(percent(share), duration(device.overlap_ns)),
            f"~{floor}" if device.kernel_floor_estimated else floor,
        )
    return table


def _gaps(report: Report) -> Table:
    table = _plain_table("class", "gaps", "total", "of window", "mean", "longest", "")
    table.columns[-1].justify = "left"
    for device in report.devices:
        if len(report.devices) > 1:
            table.add_row(Text(f"GPU {device.device}", style="bold"))
        for name, total in device.gaps.items():
            if total.count:
                _gap_row(table, device, name, total)
            if name == "host_wait":
                for label, part in device.host_wait.items():
                    if part.count:
                        _gap_row(table, device, f"  {label}", part)
        _gap_row(table, device, "all idle", _all_gaps(device))
    return table


def _all_gaps(device: DeviceReport) -> GapTotal:
    totals = device.gaps.values()
    return GapTotal(
        count=sum(total.count for total in totals),
        total_ns=sum(total.total_ns for total in totals),
        max_ns=max((total.max_ns for total in totals), default=0),
    )


def _gap_row(table: Table, device: DeviceReport, name: str, total: GapTotal) -> None:
    share = total.total_ns / device.window_ns if device.window_ns else None
    mean = total.total_ns / total.count if total.count else None
    bar = "" if name == "all idle" else "█" * round((share or 0.0) * _BAR_CELLS)
    table.add_row(
        name,
        *(count(total.count), duration(total.total_ns), f"{percent(share)} %"),
        *(duration(mean), duration(total.max_ns), bar),
        style="dim" if name.startswith(" ") else None,
    )


def _longest_gaps(report: Report, width: int) -> Table:
    several, roomy = len(report.devices) > 1, width >= _ROOMY_WIDTH
    heads = [*(["GPU"] if several else []), "at", "length", "class", "ended by"]
    table = _plain_table(*heads, *(["after"] if roomy else []), left=0)
    for column in table.columns[heads.index("class") :]:
        column.justify = "left"
    room = max(width - (51 if several else 46), 20)
    cells = room // 2 if roomy else room
    for gap in report.largest_gaps:
        kind = f"{gap.gap_class}: {gap.label}" if gap.label else gap.gap_class
        table.add_row(
            *([f"{gap.device}"] if several else []),
            *(duration(gap.at_ns), duration(gap.length_ns), kind),
            shorten_kernel(gap.next, cells),
            *([shorten_kernel(gap.prev, cells)] if roomy else []),
        )
    return table


def _launches(launches: LaunchReport, width: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(max_width=width - 16)
    apis = ", ".join(f"{plain_text(name)} {count(n)}" for name, n in launches.by_api.items())
    table.add_row("calls", f"{count(launches.calls)}: {apis}")
    if launches.graph_launches:
        sizes = launches.gpu_ops_per_graph_launch
        spread = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}-{max(sizes):,}"
        table.add_row(
            "graphs", f"{count(launches.graph_launches)} graph launches of {spread} GPU ops each"
        )
    table.add_row("call time", _percentiles(launches.api_ns))
    table.add_row("queue time", _percentiles(launches.queue_ns))
    table.add_row("call to start", _percentiles(launches.launch_latency_ns))
    table.add_row("queue depth", f"median {number(launches.median_queue_depth)}")
    return table


def _percentiles(values: Percentiles | None) -> str:
    if values is None:
        return UNKNOWN
    return f"p50 {duration(values.p50)}  p99 {duration(values.p99)}"


def _steps(report: Report, width: int) -> Table:
    table = _plain_table(
        "step", "host", _span(report), "busy", "idle", "idle %", "launches", _ops(report)
    )
    shown = report.steps[:_STEP_ROWS]
    cells = max(width - 64, 12)
    for step in shown:
        name = step.name if step.name[-1:].isdigit() else f"{step.name} {step.index}"
        idle_ns = step.idle_ns if step.gpu_span_ns else None
        share = idle_ns / step.gpu_span_ns if idle_ns is not None and step.gpu_span_ns else None
        table.add_row(
            cut_middle(plain_text(name), cells),
            *(duration(step.host_ns), duration(step.gpu_span_ns)),
            *(duration(step.busy_ns if step.gpu_ops else None), duration(step.idle_ns)),
            *(percent(share), count(step.launch_calls), count(step.gpu_ops)),
        )
    return _with_rest(table, len(report.steps), len(shown), "steps")


def _kernels(report: Report, width: int, rows: int) -> Table:
    table = _plain_table("name", "calls", "total", "mean", "share")
    shown = report.kernels[:rows]
    cells = max(width - 40, 16)
    for kernel in shown:
        table.add_row(
            shorten_kernel(kernel.name, cells),
            *(count(kernel.count), duration(kernel.total_ns), duration(kernel.mean_ns)),
            f"{percent(kernel.share)} %",
        )
    return _with_rest(table, len(report.kernels), len(shown), "kernels")


def _ranges(report: Report, width: int, rows: int) -> Table:
    time = "time" if _on_cpu(report) else "GPU time"
    table = _plain_table("range", time, _ops(report), "launches", "confidence")
    shown = report.ranges[:rows]
    cells = max(width - 43, 16)
    open_paths: list[str] = []
    for found in shown:
        while open_paths and not found.path.startswith(open_paths[-1]):
            open_paths.pop()
        name = found.path[len(open_paths[-1]) :] if open_paths else found.path
        indent = "  " * len(open_paths)
        open_paths.append(found.path + "/")
        table.add_row(
            cut_middle(indent + plain_text(name), cells),
            *(duration(found.gpu_ns), count(found.gpu_ops), count(found.launch_calls)),
            found.confidence,
        )
    return _with_rest(table, len(report.ranges), len(shown), "ranges")


def _with_rest(table: Table, total: int, shown: int, what: str) -> Table:
    if total > shown:
        table.add_row(Text(f"and {total - shown} more {what}", style="dim"))
    return table


def table_text(report: Report, by: str = "kernel", width: int = 100) -> str:
    """The same tables as plain text of a given width."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(ReportTable(report, by))
    return captured.get()
