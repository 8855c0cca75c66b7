"""Several traces side by side: where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from decodescope.analyzer.schema.report import CaptureInfo, Report
from decodescope.analyzer.tables.columns import (
    BYTES_PER_S,
    COUNT,
    DURATION,
    PROSE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.tables.figures import columns_of
from decodescope.analyzer.text.formatting import weights_note


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
