"""The roofline of a report as a plot needs it: kernels as points, peaks as ceilings.

A kernel with I FLOP/byte runs at most at min(compute peak, I · bandwidth) FLOP/s.
Source: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from dataclasses import dataclass

from decodescope.analyzer.roofline.peaks import datasheet_peak
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.op_families import FAMILIES, kernel_family


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One kernel at `intensity` FLOP/byte and `flops_per_s`; `ns` is the time by which the report
    ranks kernels, `share_of_limit` as in `Roofline`."""

    name: str
    family: str
    intensity: float
    flops_per_s: float
    ns: int
    share_of_limit: float | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A peak in bytes/s or FLOP/s and what it is ("measured", "datasheet bf16")."""

    label: str
    per_s: float


@dataclass(frozen=True, slots=True)
class RooflineModel:
    """`points` are in the report's order. `unknown` kernels have no known bytes and FLOPs, or no
    FLOPs at all. `step` is a whole step, unprofiled if that was timed, with its least bytes; None
    if its bytes or FLOPs are unknown. Ceilings are empty if the device's peaks are unknown."""

    points: tuple[RooflinePoint, ...]
    step: RooflinePoint | None
    unknown: int
    bandwidths: tuple[Ceiling, ...]
    computes: tuple[Ceiling, ...]


def roofline_model(report: Report) -> RooflineModel:
    """The kernels whose bytes and FLOPs are known, and the peaks of the device: the bandwidth
    measured with the capture, and the datasheet's figures. Compute peaks are those of the capture's
    dtype, of every dtype if it is unknown."""
    points = []
    for kernel in report.kernels:
        found = kernel.roofline
        if found is None or not (found.flops and found.bytes and found.total_ns):
            continue
        points.append(
            RooflinePoint(
                name=kernel.name,
                family=FAMILIES[kernel_family(kernel.name)],
                intensity=found.flops / found.bytes,
                flops_per_s=found.flops_per_s,
                ns=kernel.critical_ns if report.overlapping else kernel.total_ns,
                share_of_limit=found.share_of_limit,
            )
        )
    bandwidths, computes = _ceilings(report)
    unknown = len(report.kernels) - len(points)
    return RooflineModel(tuple(points), _step(report), unknown, bandwidths, computes)


def _step(report: Report) -> RooflinePoint | None:
    capture, observer = report.capture, report.observer
    step_ns = (observer.unprofiled_step_ns or observer.profiled_step_ns) if observer else None
    if capture is None or not (step_ns and capture.flops_per_step and capture.bytes_per_step > 0):
        return None
    return RooflinePoint(
        name="the whole step",
        family="",
        intensity=capture.flops_per_step / capture.bytes_per_step,
        flops_per_s=capture.flops_per_step * 1e9 / step_ns,
        ns=step_ns,
        share_of_limit=None,
    )


def _ceilings(report: Report) -> tuple[tuple[Ceiling, ...], tuple[Ceiling, ...]]:
    capture = report.capture
    names = {device.name for device in report.devices}
    name = capture.device_name if capture else names.pop() if len(names) == 1 else ""
    sheet = datasheet_peak(name)
    bandwidths, computes = [], []
    if capture is not None and capture.measured_peak_bytes_per_s:
        bandwidths.append(Ceiling("measured", capture.measured_peak_bytes_per_s))
    if sheet is not None:
        bandwidths.append(Ceiling("datasheet", sheet.bytes_per_s))
        computes = [
            Ceiling(f"datasheet {dtype}", peak)
            for dtype, peak in sheet.flops_per_s.items()
            if capture is None or dtype == capture.dtype
        ]
    return tuple(bandwidths), tuple(computes)
