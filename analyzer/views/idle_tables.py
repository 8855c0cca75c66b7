"""Tables of devices, their streams, and their idle time: by class, by step, gap by gap."""

from functools import partial
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    DeviceReport,
    GapReport,
    GapTotal,
    Report,
    StepReport,
    StreamReport,
)
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.views.table_parts import MEDIUM_WIDTH, Column, columns_table
from decodescope.analyzer.vocabulary.words import device_words, gap_causes, ops_word

_BAR_CELLS, _CLASS_CELLS, _MIN_RANGE_CELLS = 12, 16, 8
_STREAM_ROWS, _STEP_ROWS = 12, 10


def devices_table(report: Report, width: int) -> Table:
    """One row for each device."""
    medium = width >= MEDIUM_WIDTH
    columns: list[Column[DeviceReport]] = [
        Column("device", lambda device: f"{device.device}", text=True),
        Column(ops_word(report), lambda device: count(device.gpu_ops)),
        Column("kernels", lambda device: count(device.kernels), medium),
        Column("window", lambda device: duration(device.window_ns)),
        Column("busy", lambda device: duration(device.busy_ns)),
        Column("idle", lambda device: duration(device.idle_ns)),
        Column("idle %", lambda device: percent(_of_window(device.idle_ns, device))),
        Column("overlap", lambda device: duration(device.overlap_ns), medium),
        Column("floor", _floor, medium),
    ]
    return columns_table(columns, report.devices)


def _floor(device: DeviceReport) -> str:
    floor = duration(device.kernel_floor_ns)
    return f"~{floor}" if device.kernel_floor_estimated else floor


def _of_window(ns: int, device: DeviceReport) -> float | None:
    return ns / device.window_ns if device.window_ns else None


class _Stream(NamedTuple):
    device: DeviceReport
    stream: StreamReport
    ended: GapTotal


def streams_table(report: Report) -> Table:
    """One row for each stream, the busiest of each device first."""
    several = len(report.devices) > 1
    stream = "thread" if report.on_cpu else "stream"
    columns: list[Column[_Stream]] = [
        Column("GPU", lambda row: f"{row.device.device}", several, text=True),
        Column(stream, lambda row: f"{row.stream.stream}", text=True),
        Column(ops_word(report), lambda row: count(row.stream.gpu_ops)),
        Column("busy", lambda row: duration(row.stream.busy_ns)),
        Column("overlap", lambda row: duration(row.stream.overlap_ns)),
        Column("gaps", lambda row: count(row.ended.count)),
        Column("idle ended", lambda row: duration(row.ended.total_ns)),
    ]
    rows = [
        _Stream(device, stream, stream.all_gaps)
        for device in report.devices
        for stream in sorted(device.streams, key=lambda stream: -stream.busy_ns)
    ]
    return columns_table(columns, rows, _STREAM_ROWS, "streams")


class _Class(NamedTuple):
    """A class of gaps, a part of host_wait (its name is indented), or all idle time."""

    device: DeviceReport
    name: str
    total: GapTotal

    @property
    def share(self) -> float | None:
        return _of_window(self.total.total_ns, self.device)

    @property
    def bar(self) -> str:
        return "" if self.name == "all idle" else "█" * round((self.share or 0.0) * _BAR_CELLS)


def gaps_table(report: Report, width: int) -> Table:
    """The classes of gaps that occurred on each device; host_wait also by what the host did."""
    medium = width >= MEDIUM_WIDTH
    columns: list[Column[_Class]] = [
        Column("class", lambda row: row.name, text=True),
        Column("gaps", lambda row: count(row.total.count)),
        Column("total", lambda row: duration(row.total.total_ns)),
        Column("of window", lambda row: f"{percent(row.share)} %"),
        Column("mean", lambda row: duration(_mean_ns(row.total)), medium),
        Column("longest", lambda row: duration(row.total.max_ns)),
        Column("", lambda row: row.bar, medium, text=True),
    ]
    rows: list[_Class | Text] = []
    for device in report.devices:
        if len(report.devices) > 1:
            rows.append(Text(device_words(device.device), style="bold"))
        for name, total in device.gaps.items():
            parts = {name: total}
            if name == "host_wait":
                parts |= {f"  {label}": part for label, part in device.host_wait.items()}
            rows += [_Class(device, label, part) for label, part in parts.items() if part.count]
        rows.append(_Class(device, "all idle", device.all_gaps))
    return columns_table(columns, rows, style=lambda row: "dim" if row.name[0] == " " else None)


class _Communication(NamedTuple):
    """A kind of communication, all of it, or the part that nothing covers."""

    device: DeviceReport
    name: str
    ns: int


def communication_table(report: Report) -> Table:
    """The communication of each device that did any: by kind, in all, and exposed."""
    columns: list[Column[_Communication]] = [
        Column("kind", lambda row: row.name, text=True),
        Column("time", lambda row: duration(row.ns)),
        Column("of window", lambda row: f"{percent(_of_window(row.ns, row.device))} %"),
        Column("of busy", lambda row: f"{percent(row.ns / row.device.busy_ns)} %"),
    ]
    rows: list[_Communication | Text] = []
    for device in report.devices:
        if not device.communication_ns:
            continue
        if len(report.devices) > 1:
            rows.append(Text(device_words(device.device), style="bold"))
        parts = device.communication
        if len(parts) > 1:
            parts = {**parts, "all communication": device.communication_ns}
        parts = {**parts, "exposed: no other op ran": device.exposed_communication_ns}
        rows += [_Communication(device, name, ns) for name, ns in parts.items()]
    return columns_table(columns, rows)


def _mean_ns(total: GapTotal) -> float | None:
    return total.total_ns / total.count if total.count else None


def longest_gaps_table(report: Report, width: int) -> Table:
    """Each gap with the ops around it, its place and what the host was in."""
    cells = max(width - 24, 24)

    def described(gap: GapReport) -> Text:
        causes = gap_causes(gap)
        text = Text(" + ".join(causes))
        if text.cell_len > cells:
            text = Text("\n").join(map(Text, causes))
        names = short_kernels((gap.prev, gap.next), cells - 7)
        for line in (
            _place(report, gap, cells),
            f"after {names[gap.prev]}",
            f"before {names[gap.next]}",
            f"host: {_host(gap, cells - 6)}",
        ):
            text.append(f"\n{line}", style="dim")
        return text

    columns: list[Column[GapReport]] = [
        Column("at", lambda gap: duration(gap.at_ns)),
        Column("length", lambda gap: duration(gap.length_ns)),
        Column("", described, text=True),
    ]
    return columns_table(columns, report.largest_gaps)


def _place(report: Report, gap: GapReport, cells: int) -> str:
    parts = [f"step {gap.step}"] if gap.step is not None else []
    if len(report.devices) > 1:
        parts.append(device_words(gap.device))
    parts.append(f"{'thread' if report.on_cpu else 'stream'} {gap.stream}")
    if gap.range is not None:
        room = cells - len(" · ".join([*parts, ""]))
        parts.append(cut_middle(gap.range, room))
    return " · ".join(parts)


def _host(gap: GapReport, cells: int) -> str:
    host = gap.host
    if host is None:
        return "no launching thread in the trace"
    doing = " · ".join(part for part in (host.operator, host.call) if part is not None)
    doing = cut_middle(doing or "in no operator or call", cells)
    room = cells - len(doing) - len(" · in ")
    if host.range is None or host.range == gap.range or room < _MIN_RANGE_CELLS:
        return doing
    return f"{doing} · in {cut_middle(host.range, room)}"


def steps_idle_table(report: Report, width: int) -> Table:
    """Idle time of each step by class: the largest classes, as many as there is room for."""
    sums = {name: sum(step.gaps.get(name, 0) for step in report.steps) for name in GAP_CLASSES}
    occurred = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    room = max((width - 24) // _CLASS_CELLS, 1)
    groups = {name: [name] for name in occurred[:room]}
    if len(occurred) > room:
        groups["others"] = occurred[room:]
    columns: list[Column[StepReport]] = [
        Column("step", lambda step: f"{step.index}", text=True),
        Column("all idle", lambda step: duration(step.idle_ns)),
        *(Column(head, partial(_idle, names)) for head, names in groups.items()),
    ]
    return columns_table(columns, report.steps, _STEP_ROWS, "steps")


def _idle(classes: list[str], step: StepReport) -> str:
    return duration(sum(step.gaps.get(name, 0) for name in classes) if step.gpu_ops else None)
