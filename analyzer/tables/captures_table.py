"""Several traces side by side: where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from decodescope.analyzer.schema.report import CaptureInfo, Report
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, columns_of
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
    kinds.TEXT("name", "trace"),
    *columns_of(
        "capture",
        kinds.PROSE("model", "model", text=_model, always=True),
        kinds.TEXT("variant", "variant"),
        kinds.TEXT("device_name", "device"),
        kinds.TEXT("dtype", "dtype"),
        kinds.COUNT("steps", "steps"),
        kinds.COUNT("position", "from position"),
        kinds.BYTES_PER_S("measured_peak_bytes_per_s", "measured read peak"),
        kinds.TEXT("measured_peak_at", "measured"),
        kinds.DURATION("kernel_floor_ns", "kernel floor"),
        kinds.TEXT("decodescope_version", "decodescope"),
    ),
)
