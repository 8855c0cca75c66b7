"""Several traces side by side: their figures, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from decodescope.analyzer.schema.report import CaptureInfo, DeviceReport, Report
from decodescope.analyzer.tables.columns import (
    BYTES,
    BYTES_PER_S,
    COUNT,
    DURATION,
    NUMBER,
    PERCENT,
    PROSE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.tables.figures import columns_of, quotient
from decodescope.analyzer.text.formatting import weights_note


@dataclass(frozen=True, slots=True)
class TraceDevice:
    """A device of a trace, None without any; the first one stands for the `trace` too."""

    name: str
    trace: Report | None
    device: DeviceReport | None


def figures_table(reports: Mapping[str, Report]) -> Table[TraceDevice]:
    """One row for each device of each trace; what is not of one device is in the first one's."""
    rows = [
        TraceDevice(name, report if place == 0 else None, device)
        for name, report in reports.items()
        for place, device in enumerate(report.devices or (None,))
    ]
    return Table("devices", _FIGURES, rows)


def _device(row: TraceDevice) -> str:
    if row.device is None:
        return "no GPU activity"
    name = "" if row.device.device == "cpu" else row.device.name
    return f"{row.device.device} {name}".rstrip()


_IDLE_SHARE = quotient("device.idle_ns", "device.window_ns")
_FIGURES: tuple[Column[TraceDevice], ...] = (
    Column("name", "", TEXT, "The trace."),
    Column("device", "device", TEXT, "The device.", text=_device),
    *columns_of(
        "trace",
        Column("answer.unprofiled_step_ns", "step", DURATION, "Median without a profiler."),
        Column("answer.step_ns", "profiled", DURATION, "The median profiled step."),
    ),
    *columns_of(
        "device",
        Column("window_ns", "window", DURATION, "From the first op's start to the last one's end."),
        Column("busy_ns", "busy", DURATION, "The time in which any op ran."),
        Column("idle_ns", "idle", DURATION, "Window minus busy."),
        Column("idle_share", "idle", PERCENT, "Idle ÷ window.", _IDLE_SHARE),
        Column("gpu_ops", "ops", COUNT, "The ops of all steps."),
    ),
    *columns_of(
        "trace",
        Column("launches.calls", "launch calls", COUNT, "The launch calls of all steps."),
        Column("launches.graph_launches", "graph launches", COUNT, "Those that launch a graph."),
        Column("launches.median_queue_depth", "median queue", NUMBER, "The queue at a launch."),
        Column("launches.queue_depth.empty_share", "queue empty", PERCENT, "How often it is."),
        Column("capture.bytes_per_step", "read a step", BYTES, "The bytes that a step must read."),
    ),
)


@dataclass(frozen=True, slots=True)
class CaptureRow:
    """A trace and what decodescope knows of its capture, None for another's trace."""

    name: str
    capture: CaptureInfo | None


def captures_table(reports: Mapping[str, Report]) -> Table[CaptureRow]:
    rows = [CaptureRow(name, report.capture) for name, report in reports.items()]
    return Table("traces", _CAPTURES, rows)


def _model(row: CaptureRow) -> str:
    capture = row.capture
    if capture is None:
        return "not captured by decodescope: model, weights and bytes of a step are not known"
    note = weights_note(capture.weights)
    return f"{capture.model} ({note})" if note else capture.model


_CAPTURES: tuple[Column[CaptureRow], ...] = (
    Column("name", "trace", TEXT, "The trace."),
    *columns_of(
        "capture",
        Column("model", "model", PROSE, "The model, and its weights.", text=_model, always=True),
        Column("variant", "variant", TEXT, "The variant."),
        Column("device_name", "device", TEXT, "The device."),
        Column("dtype", "dtype", TEXT, "The dtype."),
        Column("steps", "steps", COUNT, "The profiled steps."),
        Column("position", "from position", COUNT, "The position of the first one."),
        Column(
            "measured_peak_bytes_per_s", "measured read peak", BYTES_PER_S, "Of this GPU's memory."
        ),
        Column("measured_peak_at", "measured", TEXT, "When."),
        Column("kernel_floor_ns", "kernel floor", DURATION, "The least gap between two ops."),
        Column("decodescope_version", "decodescope", TEXT, "Its version."),
    ),
)
