"""Interruptions, and the steady state beside the whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from decodescope.analyzer.schema.interruption_report import (
    InterruptionReport,
    SteadyState,
    StepSummary,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import COUNT, DURATION, PERCENT, PLACE, TEXT, Column, Table
from decodescope.analyzer.tables.devices_table import device_column


def interruptions_table(report: Report, most: int | None = None) -> Table[InterruptionReport]:
    """The first `most` intervals in order of time."""
    columns: tuple[Column[InterruptionReport], ...] = (
        device_column(report.devices),
        Column("at_ns", "at", DURATION, "When, after the device's first op."),
        Column("ns", "interrupted", DURATION, "For how much longer than usual."),
        Column(
            "cause",
            "cause",
            TEXT,
            "The cause.",
            lambda one: one.cause.replace("_", " "),
        ),
        Column("step", "step", PLACE, "The step, if it was in one.", priority=2),
        Column("call", "call", TEXT, "The host call that took the time.", priority=3, code=True),
        Column(
            "evidence",
            "evidence",
            TEXT,
            "How it differs from the other steps.",
            flexible=True,
            wrap=True,
            least=24,
            tone="dim",
        ),
    )
    return Table(
        "intervals",
        columns,
        report.interruptions[:most],
        total=len(report.interruptions),
        key=lambda one: (one.device, one.at_ns),
    )


@dataclass(frozen=True, slots=True)
class WindowRow:
    """The window of a device, or of all devices together: the whole, or the steady state."""

    device: int | str | None
    name: str
    window_ns: int
    busy_ns: int
    idle_ns: int


def steady_table(report: Report, steady: SteadyState) -> Table[WindowRow]:
    """The whole window and what remains of it, of each device."""
    columns: tuple[Column[WindowRow], ...] = (
        device_column(report.devices),
        Column("name", "", TEXT, "The whole window, or without interruptions."),
        Column("window_ns", "window", DURATION, "Its length."),
        Column("busy_ns", "busy", DURATION, "The time in which any op ran."),
        Column("idle_ns", "idle", DURATION, "Window minus busy."),
        Column(
            "idle_share",
            "idle",
            PERCENT,
            "Idle ÷ window.",
            lambda row: row.idle_ns / row.window_ns if row.window_ns else None,
        ),
    )
    rows = list(_windows(report, steady))
    return Table("windows", columns, rows, key=lambda row: (row.device, row.name))


def _windows(report: Report, steady: SteadyState) -> Iterator[WindowRow]:
    for device, left in zip(report.devices, steady.devices, strict=True):
        for name, found in (("whole", device), ("steady", left)):
            yield WindowRow(device.device, name, found.window_ns, found.busy_ns, found.idle_ns)


def median_steps_table(steady: SteadyState, on_cpu: bool, most: int) -> Table[StepSummary]:
    """The median step of each kind, without interruptions."""
    columns: tuple[Column[StepSummary], ...] = (
        Column(
            "kind",
            "median step",
            TEXT,
            "The step's name, with “*” for its numbers.",
            flexible=True,
            least=18,
            priority=3,
        ),
        Column("steps", "steps", COUNT, "How many launched ops."),
        Column("interrupted_steps", "interrupted", COUNT, "How many of them were interrupted."),
        Column("time_ns", "time", DURATION, "From a step's start to that of the next one."),
        Column("host_ns", "host", DURATION, "The length of the host's marker.", priority=4),
        Column(
            "gpu_span_ns",
            "op span" if on_cpu else "GPU span",
            DURATION,
            "From the start of its first op to the end of its last one.",
        ),
        Column("busy_ns", "busy", DURATION, "The time of the span in which any op ran."),
        Column("idle_ns", "idle", DURATION, "The rest of the span."),
    )
    return Table(
        "kinds",
        columns,
        steady.steps[:most],
        total=len(steady.steps),
        key=lambda step: step.kind,
    )
