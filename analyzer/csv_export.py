"""The rows of a report as CSV, for spreadsheets and scripts. Times are integer nanoseconds.

Every row says of which devices, model, weights and variant it is; the last three are empty for a
trace that decodescope did not capture.
"""

import csv
import io
from collections.abc import Iterable

from decodescope.analyzer.report import DeviceReport, Report

_Row = Iterable[str | int | float]


def render_csv(report: Report, by: str = "kernel") -> str:
    """CSV with a header line; `by` is "kernel", "range" or "gap".

    Gaps have one row for each device and class, host_wait one for each label, so that the totals
    of a device add up to its idle time.
    """
    header, rows = {"kernel": _kernels, "range": _ranges, "gap": _gaps}[by](report)
    origin_header, origin = _origin(report, with_devices=by != "gap")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*header, *origin_header))
    writer.writerows((*row, *origin) for row in rows)
    return text.getvalue()


def _origin(report: Report, with_devices: bool) -> tuple[_Row, _Row]:
    devices = " ".join(str(device.device) for device in report.devices)
    capture = report.capture
    captured = ("", "", "")
    if capture is not None:
        captured = (capture.model, capture.weights, capture.variant)
    header = ("model", "weights", "variant")
    return (("devices", *header), (devices, *captured)) if with_devices else (header, captured)


def _kernels(report: Report) -> tuple[_Row, list[_Row]]:
    header = ("name", "count", "total_ns", "mean_ns", "share")
    return header, [(k.name, k.count, k.total_ns, k.mean_ns, k.share) for k in report.kernels]


def _ranges(report: Report) -> tuple[_Row, list[_Row]]:
    header = ("path", "gpu_ns", "gpu_ops", "launch_calls", "confidence")
    return header, [
        (r.path, r.gpu_ns, r.gpu_ops, r.launch_calls, r.confidence) for r in report.ranges
    ]


def _gaps(report: Report) -> tuple[_Row, list[_Row]]:
    header = ("device", "class", "label", "count", "total_ns", "max_ns")
    return header, [row for device in report.devices for row in _device_gaps(device)]


def _device_gaps(device: DeviceReport) -> Iterable[_Row]:
    for name, total in device.gaps.items():
        if name == "host_wait":
            for label, part in device.host_wait.items():
                yield (device.device, name, label, part.count, part.total_ns, part.max_ns)
        else:
            yield (device.device, name, "", total.count, total.total_ns, total.max_ns)
