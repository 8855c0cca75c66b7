"""The rows of a report as CSV, for spreadsheets and scripts. Times are integer nanoseconds.

Every row names its devices, model, weights and variant; the last three are empty for a trace that
decodescope did not capture. Counts and times of kernels and ranges are sums over the `steps` of the
main kind; 0 for a trace without steps, whose sums are of all of it.

Text is `plain_line`, and follows an apostrophe where a spreadsheet would read it as a formula.
"""

import csv
import io

from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.report_tables import REPORT_TABLES
from decodescope.analyzer.text.formatting import extent_text
from decodescope.analyzer.text.plain import plain_line

_Cell = str | int | float | tuple[int, int, int] | None

_TABLES = {"kernel": "kernels", "range": "ranges", "gap": "stream_gaps"}
# What begins a formula in Excel, LibreOffice or Google Sheets, also in its full-width form.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report, by: str = "kernel") -> str:
    """CSV with a header line; `by` is "kernel", "range" or "gap". Unknown figures are empty cells.
    Gaps have one row for each device, stream (that of the op that ends them) and class that
    occurred, host_wait one for each label: the totals of a device add up to its idle time."""
    figures, capture = REPORT_TABLES[_TABLES[by]](report).figures(), report.capture
    devices = " ".join(str(device.device) for device in report.devices)
    origin: dict[str, str | int | None] = {}
    if by != "gap":
        origin = {"steps": report.main_steps.steps, "devices": devices}
    for name in ("model", "weights", "variant"):
        origin[name] = None if capture is None else getattr(capture, name)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*figures, *origin])
    for row in zip(*figures.values(), strict=True):
        writer.writerow(map(_cell, (*row, *origin.values())))
    return text.getvalue()


def _cell(value: _Cell) -> _Cell:
    if isinstance(value, tuple):
        return extent_text(value)
    if not isinstance(value, str):
        return value
    text = plain_line(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
