"""The rows of a report as CSV, for spreadsheets and scripts. Times are integer nanoseconds.

Every row names its devices, model, weights and variant; the last three are empty for a trace that
decodescope did not capture.

Text is `plain_line`, and follows an apostrophe where a spreadsheet would read it as a formula.
"""

import csv
import io
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.gap_classes_table import stream_gaps_table
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.tables.ranges_table import ranges_table
from decodescope.analyzer.text.formatting import extent_text
from decodescope.analyzer.text.plain import plain_line

Row = TypeVar("Row")
_Cell = str | int | float | None
_Row = Iterable[_Cell]

# What begins a formula in Excel, LibreOffice or Google Sheets, also in its full-width form.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report, by: str = "kernel") -> str:
    """CSV with a header line; `by` is "kernel", "range" or "gap".

    Unknown figures are empty cells. Gaps have one row for each device, stream (that of the op that
    ends them) and class that occurred, host_wait one for each label, so that the totals of a device
    add up to its idle time.
    """
    header, rows = {"kernel": _kernels, "range": _ranges, "gap": _gaps}[by](report)
    origin_header, origin = _origin(report, with_devices=by != "gap")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*header, *origin_header))
    writer.writerows(map(_cell, (*row, *origin)) for row in rows)
    return text.getvalue()


def _cell(value: _Cell) -> _Cell:
    if not isinstance(value, str):
        return value
    text = plain_line(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _origin(report: Report, with_devices: bool) -> tuple[_Row, _Row]:
    devices = " ".join(str(device.device) for device in report.devices)
    header = ("model", "weights", "variant")
    captured = _figures(report.capture, header)
    return (("devices", *header), (devices, *captured)) if with_devices else (header, captured)


def _kernels(report: Report) -> tuple[_Row, list[_Row]]:
    return _of_table(kernels_table(report.kernels, attributed=report.overlapping))


def _of_table(table: Table[Row]) -> tuple[_Row, list[_Row]]:
    """A column for each figure of a table, under its key."""
    header = [column.key.replace(".", "_") for column in table.columns]
    return header, [[_extent(column.figure(row)) for column in table.columns] for row in table.rows]


def _extent(value: _Cell | tuple[int, int, int]) -> _Cell:
    return extent_text(value) if isinstance(value, tuple) else value


def _ranges(report: Report) -> tuple[_Row, list[_Row]]:
    return _of_table(ranges_table(report))


def _gaps(report: Report) -> tuple[_Row, list[_Row]]:
    return _of_table(stream_gaps_table(report))


def _figures(structure: Struct | None, names: Iterable[str]) -> _Row:
    return [None if structure is None else getattr(structure, name) for name in names]
