"""The communication of each device: by kind, in all, and exposed."""

from collections.abc import Iterator
from dataclasses import dataclass

from decodescope.analyzer.schema.report import DeviceReport, Report
from decodescope.analyzer.tables.columns import DURATION, PERCENT, TEXT, Column, Table
from decodescope.analyzer.tables.devices_table import device_column


@dataclass(frozen=True, slots=True)
class CommunicationRow:
    """A kind of communication of a device, all of it, or the part in which nothing else ran."""

    device: int | str
    name: str
    ns: int
    window_ns: int
    busy_ns: int
    whole: bool


def communication_table(report: Report) -> Table[CommunicationRow]:
    """The devices that communicated."""
    rows = [
        row for device in report.devices if device.communication_ns for row in _of_device(device)
    ]
    columns: tuple[Column[CommunicationRow], ...] = (
        device_column(report.devices),
        Column("kind", "kind", TEXT, "The library, or the way.", lambda row: row.name),
        Column(
            "ns",
            "time",
            DURATION,
            "The time in which any such op ran.",
        ),
        Column(
            "window_share",
            "of window",
            PERCENT,
            "Time ÷ window.",
            lambda row: row.ns / row.window_ns if row.window_ns else None,
            bar=12,
        ),
        Column(
            "busy_share",
            "of busy",
            PERCENT,
            "Time ÷ busy.",
            lambda row: row.ns / row.busy_ns if row.busy_ns else None,
        ),
    )
    return Table(
        "kinds",
        columns,
        rows,
        key=lambda row: (row.device, row.name),
        tone=lambda row: "strong" if row.whole else "plain",
    )


def _of_device(device: DeviceReport) -> Iterator[CommunicationRow]:
    parts = device.communication
    wholes = {"all communication": device.communication_ns} if len(parts) > 1 else {}
    wholes["exposed: no other op ran"] = device.exposed_communication_ns
    for found, whole in ((parts, False), (wholes, True)):
        for name, ns in found.items():
            yield CommunicationRow(device.device, name, ns, device.window_ns, device.busy_ns, whole)
