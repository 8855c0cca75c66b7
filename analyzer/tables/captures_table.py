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
    TEXT("name", "trace", "The trace."),
    *columns_of(
        "capture",
        PROSE("model", "model", "The model, and its weights.", text=_model, always=True),
        TEXT("variant", "variant", "The variant."),
        TEXT("device_name", "device", "The device."),
        TEXT("dtype", "dtype", "The dtype."),
        COUNT("steps", "steps", "The profiled steps."),
        COUNT("position", "from position", "The position of the first one."),
        BYTES_PER_S("measured_peak_bytes_per_s", "measured read peak", "Of this GPU's memory."),
        TEXT("measured_peak_at", "measured", "When."),
        DURATION("kernel_floor_ns", "kernel floor", "The least gap between two ops."),
        TEXT("decodescope_version", "decodescope", "Its version."),
    ),
)
