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
            kinds.TEXT("device", "device"),
            kinds.COUNT("gpu_ops", ops_word(report)),
            kinds.COUNT("kernels", "kernels", priority=5),
            kinds.DURATION("window_ns", "window"),
            kinds.DURATION("busy_ns", "busy"),
            kinds.DURATION("idle_ns", "idle"),
            kinds.PERCENT("idle_share", "idle", quotient("idle_ns", "window_ns")),
            kinds.DURATION("overlap_ns", "overlap", priority=6),
            kinds.DURATION(
                "kernel_floor_ns",
                "floor",
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
        "stream", "thread" if report.on_cpu else "stream", "stream.stream"
    )
    return Table(
        "streams",
        (
            device_column(report.devices),
            stream,
            kinds.COUNT("gpu_ops", ops_word(report), "stream.gpu_ops"),
            *_STREAM_TIMES,
            *map(_class_column, GAP_CLASSES),
        ),
        rows[:most],
        total=len(rows),
    )


_STREAM_TIMES: tuple[Column[StreamRow], ...] = columns_of(
    "stream",
    kinds.DURATION("busy_ns", "busy"),
    kinds.DURATION("overlap_ns", "overlap", priority=3),
    kinds.COUNT("count", "gaps", "stream.all_gaps.count", priority=2),
    kinds.DURATION("idle_ns", "idle", "stream.all_gaps.total_ns"),
)


def device_column(devices: Sequence[DeviceReport]) -> Column[Any]:
    """The device of a row, where there are several."""
    return kinds.TEXT("device", "device", shown=len(devices) > 1, priority=1)


def _class_column(name: str) -> Column[StreamRow]:
    def ns(row: StreamRow) -> int | None:
        return (row.stream.gaps[name].total_ns or None) if name in row.stream.gaps else None

    return kinds.DURATION(f"gaps.{name}", name, ns, priority=DETAIL)
