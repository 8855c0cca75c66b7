"""The rows of a report as CSV, for spreadsheets and scripts. Times are integer nanoseconds.

Every row names its devices, model, weights and variant; the last three are empty for a trace that
decodescope did not capture.

Text is `plain_line`, and follows an apostrophe where a spreadsheet would read it as a formula.
"""

import csv
import io
from collections.abc import Iterable

from msgspec import Struct

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.schema.kernel_report import LaunchShape, Roofline
from decodescope.analyzer.schema.report import Report, StreamReport
from decodescope.analyzer.text.formatting import extent_text
from decodescope.analyzer.text.plain import plain_line

_Cell = str | int | float | None
_Row = Iterable[_Cell]

# Short names are not cut: none is that long.
_NAME_CELLS = 1_000

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
    header: tuple[str, ...] = ("count", "short_calls", "total_ns", "mean_ns", "share")
    header += ("attributed_ns", "attributed_share", "shapes")
    names = short_kernels((kernel.name for kernel in report.kernels), _NAME_CELLS)
    shape, fields = LaunchShape.__struct_fields__, Roofline.__struct_fields__
    return ("name", "short_name", *header, *shape, *(f"roofline_{name}" for name in fields)), [
        (
            kernel.name,
            names[kernel.name],
            *_figures(kernel, header),
            *map(_extent, _figures(kernel.shape, shape)),
            *_figures(kernel.roofline, fields),
        )
        for kernel in report.kernels
    ]


def _extent(value: _Cell | tuple[int, int, int]) -> _Cell:
    return extent_text(value) if isinstance(value, tuple) else value


def _ranges(report: Report) -> tuple[_Row, list[_Row]]:
    header: tuple[str, ...] = ("path", "kind", "gpu_ns", "idle_ns", "gpu_ops", "launch_calls")
    header += ("confidence", "matched", "attributed_ns")
    return header, [_figures(one, header) for one in report.ranges]


def _figures(found: Struct | None, names: Iterable[str]) -> _Row:
    return [None if found is None else getattr(found, name) for name in names]


def _gaps(report: Report) -> tuple[_Row, list[_Row]]:
    header = ("device", "stream", "class", "label", "count", "total_ns", "max_ns")
    return header, [
        (device.device, stream.stream, *row)
        for device in report.devices
        for stream in device.streams
        for row in _stream_gaps(stream)
    ]


def _stream_gaps(stream: StreamReport) -> Iterable[tuple[str | int, ...]]:
    for name, total in stream.gaps.items():
        split = stream.host_wait if name == "host_wait" else {"": total}
        for label, part in split.items():
            if part.count:
                yield (name, label, part.count, part.total_ns, part.max_ns)
