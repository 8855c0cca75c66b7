"""The devices of a trace, and the streams of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.schema.report import GAP_CLASSES, DeviceReport, Report, StreamReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import DETAIL, Column, Table, columns_of, quotient
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.vocabulary.words import ops_word


def devices_table(report: Report) -> Table[DeviceReport]:
    return Table(
        "devices",
        (
            kinds.TEXT("device", "device", "The device, by its CUDA ordinal; “cpu” on a CPU."),
            kinds.COUNT("gpu_ops", ops_word(report), "How many ran."),
            kinds.COUNT("kernels", "kernels", "How many of them are kernels.", priority=5),
            kinds.DURATION(
                "window_ns", "window", "From the first op's start to the last one's end."
            ),
            kinds.DURATION("busy_ns", "busy", "The time in which any op ran."),
            kinds.DURATION("idle_ns", "idle", "Window minus busy."),
            kinds.PERCENT("idle_share", "idle", "Idle ÷ window.", quotient("idle_ns", "window_ns")),
            kinds.DURATION(
                "overlap_ns",
                "overlap",
                "The time in which two or more ops ran at once on one stream.",
                priority=6,
            ),
            kinds.DURATION(
                "kernel_floor_ns",
                "floor",
                "The least gap between two ops; “~”: estimated from the trace.",
                text=lambda row: "~" * row.kernel_floor_estimated + duration(row.kernel_floor_ns),
                priority=7,
            ),
        ),
        report.devices,
    )


@dataclass(frozen=True, slots=True)
class StreamRow:
    device: int | str
    stream: StreamReport


def streams_table(report: Report, most: int | None = None) -> Table[StreamRow]:
    """One row for each stream, the busiest of each device first."""
    rows = [
        StreamRow(device.device, stream)
        for device in report.devices
        for stream in sorted(device.streams, key=lambda stream: -stream.busy_ns)
    ]
    stream: Column[StreamRow] = kinds.TEXT(
        "stream",
        "thread" if report.on_cpu else "stream",
        "The stream; on a CPU, the thread.",
        "stream.stream",
    )
    return Table(
        "streams",
        (
            device_column(report.devices),
            stream,
            kinds.COUNT("gpu_ops", ops_word(report), "How many ran.", "stream.gpu_ops"),
            *_STREAM_TIMES,
            *map(_class_column, GAP_CLASSES),
        ),
        rows[:most],
        total=len(rows),
    )


_STREAM_TIMES: tuple[Column[StreamRow], ...] = columns_of(
    "stream",
    kinds.DURATION("busy_ns", "busy", "The time in which any of its ops ran."),
    kinds.DURATION("overlap_ns", "overlap", "When two or more of its ops ran at once.", priority=3),
    kinds.COUNT(
        "count", "gaps", "The gaps that its ops ended.", "stream.all_gaps.count", priority=2
    ),
    kinds.DURATION("idle_ns", "idle", "The time of these gaps.", "stream.all_gaps.total_ns"),
)


def device_column(devices: Sequence[DeviceReport]) -> Column[Any]:
    """The device of a row, where there are several."""
    return kinds.TEXT("device", "device", "The device.", shown=len(devices) > 1, priority=1)


def _class_column(name: str) -> Column[StreamRow]:
    def ns(row: StreamRow) -> int | None:
        return (row.stream.gaps[name].total_ns or None) if name in row.stream.gaps else None

    return kinds.DURATION(
        f"gaps.{name}", name, f"The part of the class {name}.", ns, priority=DETAIL
    )
