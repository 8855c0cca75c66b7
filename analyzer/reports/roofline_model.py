"""The roofline of a report as a plot needs it: kernels as points, peaks as ceilings.

A kernel with I FLOP/byte runs at most at min(compute peak, I · bandwidth) FLOP/s.
Source: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from dataclasses import dataclass

from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.roofline.peaks import GIVEN_PEAK, datasheet_peak
from decodescope.analyzer.schema.kernel_report import Roofline
from decodescope.analyzer.schema.report import Report


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
    """`points` are in the report's order. `unknown` kernels have no known bytes and FLOPs. `step`
    is a whole step, unprofiled if that was timed, with its least bytes; None if its bytes or FLOPs
    are unknown. Ceilings are empty if the device's peaks are unknown."""

    points: tuple[RooflinePoint, ...]
    step: RooflinePoint | None
    unknown: int
    bandwidths: tuple[Ceiling, ...]
    computes: tuple[Ceiling, ...]


def roofline_model(report: Report) -> RooflineModel:
    """The kernels whose bytes and FLOPs are known by their shapes, else by the parts of the step
    that are theirs; and the peaks of the device. Compute peaks are those of the capture's dtype, of
    every dtype if it is unknown."""
    points, unknown = [], 0
    for kernel in report.kernels:
        known = kernel.roofline or _of_parts(report, kernel.name)
        unknown += known is None
        if known is None or not (known.flops and known.bytes and known.total_ns):
            continue
        points.append(
            RooflinePoint(
                name=kernel.name,
                family=kernel_meaning(kernel.name).family,
                intensity=known.flops / known.bytes,
                flops_per_s=known.flops_per_s,
                ns=kernel.attributed_ns if report.overlapping else kernel.total_ns,
                share_of_limit=known.share_of_limit,
            )
        )
    bandwidths, computes = _ceilings(report)
    return RooflineModel(tuple(points), _step(report), unknown, bandwidths, computes)


def _of_parts(report: Report, name: str) -> Roofline | None:
    """The work and the attributed time of the parts whose longest kernel has this name, None if
    none of them says its work for certain."""
    parts, cost = report.answer.parts, report.step_cost
    own = [part for part in parts if part.kernel == name and part.bytes is not None]
    ns = sum(part.ns for part in own)
    if not ns or cost is None or not cost.is_certain:
        return None
    moved, flops, limit_ns = (
        sum(getattr(part, key) or 0 for part in own) for key in ("bytes", "flops", "limit_ns")
    )
    per_s, share = 1e9 / ns, limit_ns / ns if limit_ns else None
    return Roofline(len(own), ns, moved, flops, moved * per_s, flops * per_s, None, share)


def _step(report: Report) -> RooflinePoint | None:
    cost = report.step_cost
    step_ns = report.answer.unprofiled_step_ns or report.answer.step_ns
    if cost is None or not cost.is_certain:
        return None
    if not (step_ns and cost.flops_per_step and cost.bytes_per_step > 0):
        return None
    return RooflinePoint(
        name="the whole step",
        family="",
        intensity=cost.flops_per_step / cost.bytes_per_step,
        flops_per_s=cost.flops_per_step * 1e9 / step_ns,
        ns=step_ns,
        share_of_limit=None,
    )


def _ceilings(report: Report) -> tuple[tuple[Ceiling, ...], tuple[Ceiling, ...]]:
    cost = report.step_cost
    names = {device.name for device in report.devices}
    name = cost.device_name if cost else names.pop() if len(names) == 1 else ""
    sheet = datasheet_peak(name)
    bandwidths, computes = [], []
    if cost is not None and cost.measured_peak_bytes_per_s:
        bandwidths.append(Ceiling("measured", cost.measured_peak_bytes_per_s))
    if cost is not None and cost.peak_source == GIVEN_PEAK and cost.datasheet_peak_bytes_per_s:
        bandwidths.append(Ceiling(GIVEN_PEAK, cost.datasheet_peak_bytes_per_s))
        if cost.peak_flops_per_s:
            computes.append(Ceiling(f"{GIVEN_PEAK} {cost.dtype}", cost.peak_flops_per_s))
    elif sheet is not None:
        bandwidths.append(Ceiling("datasheet", sheet.bytes_per_s))
        computes = [
            Ceiling(f"datasheet {dtype}", peak)
            for dtype, peak in sheet.flops_per_s.items()
            if cost is None or dtype == cost.dtype
        ]
    return tuple(bandwidths), tuple(computes)
