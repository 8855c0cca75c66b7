"""Tables of devices, their streams, and their idle time by class."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, percent
from decodescope.analyzer.schema.report import DeviceReport, GapTotal, Report
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    on_cpu,
    ops_word,
    plain_table,
    with_rest,
)

_BAR_CELLS = 12
_STREAM_ROWS = 12


def devices_table(report: Report, width: int) -> Table:
    """One row for each device."""
    medium = width >= MEDIUM_WIDTH
    kernels = ["kernels"] if medium else []
    heads = ("device", ops_word(report), *kernels, "window", "busy", "idle", "idle %")
    table = plain_table(*heads, *(["overlap", "floor"] if medium else []))
    for device in report.devices:
        share = device.idle_ns / device.window_ns if device.window_ns else None
        floor = duration(device.kernel_floor_ns)
        floor = f"~{floor}" if device.kernel_floor_estimated else floor
        table.add_row(
            *(f"{device.device}", count(device.gpu_ops)),
            *([count(device.kernels)] if medium else []),
            *(duration(ns) for ns in (device.window_ns, device.busy_ns, device.idle_ns)),
            percent(share),
            *([duration(device.overlap_ns), floor] if medium else []),
        )
    return table


def has_streams(report: Report) -> bool:
    """Whether any device used more than one stream."""
    return any(len(device.streams) > 1 for device in report.devices)


def streams_table(report: Report) -> Table:
    """One row for each stream, the busiest of each device first."""
    several = len(report.devices) > 1
    heads = (*(["GPU"] if several else []), "thread" if on_cpu(report) else "stream")
    columns = (*heads, ops_word(report), "busy", "overlap", "gaps", "idle ended")
    table = plain_table(*columns, left=len(heads))
    rows = [
        (device, stream)
        for device in report.devices
        for stream in sorted(device.streams, key=lambda stream: -stream.busy_ns)
    ]
    for device, stream in rows[:_STREAM_ROWS]:
        ended = all_gaps(stream.gaps)
        table.add_row(
            *([f"{device.device}"] if several else []),
            *(f"{stream.stream}", count(stream.gpu_ops), duration(stream.busy_ns)),
            *(duration(stream.overlap_ns), count(ended.count), duration(ended.total_ns)),
        )
    return with_rest(table, len(rows), min(len(rows), _STREAM_ROWS), "streams")


def gaps_table(report: Report, width: int) -> Table:
    """The classes of gaps that occurred on each device; host_wait also by what the host did."""
    medium = width >= MEDIUM_WIDTH
    heads = ("class", "gaps", "total", "of window", *(["mean"] if medium else []), "longest")
    table = plain_table(*heads, *([""] if medium else []))
    if medium:
        table.columns[-1].justify = "left"
    for device in report.devices:
        if len(report.devices) > 1:
            table.add_row(Text(f"GPU {device.device}", style="bold"))
        for name, total in device.gaps.items():
            if total.count:
                _gap_row(table, device, name, total, medium)
            if name == "host_wait":
                for label, part in device.host_wait.items():
                    if part.count:
                        _gap_row(table, device, f"  {label}", part, medium)
        _gap_row(table, device, "all idle", all_gaps(device.gaps), medium)
    return table


def all_gaps(gaps: dict[str, GapTotal]) -> GapTotal:
    """All classes together."""
    totals = gaps.values()
    return GapTotal(
        count=sum(total.count for total in totals),
        total_ns=sum(total.total_ns for total in totals),
        max_ns=max((total.max_ns for total in totals), default=0),
    )


def _gap_row(table: Table, device: DeviceReport, name: str, total: GapTotal, medium: bool) -> None:
    share = total.total_ns / device.window_ns if device.window_ns else None
    mean = total.total_ns / total.count if total.count else None
    bar = "" if name == "all idle" else "█" * round((share or 0.0) * _BAR_CELLS)
    table.add_row(
        *(name, count(total.count), duration(total.total_ns), f"{percent(share)} %"),
        *([duration(mean)] if medium else []),
        duration(total.max_ns),
        *([bar] if medium else []),
        style="dim" if name.startswith(" ") else None,
    )
