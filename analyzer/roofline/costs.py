"""The cost of a step: its work, the peaks of its device, and the least time that the work takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import StepCost

if TYPE_CHECKING:
    from decodescope.analyzer.modelling.step_work import RoleWork
    from decodescope.analyzer.modelling.weight_formats import WeightFormat


@dataclass(frozen=True, slots=True)
class Limit:
    """At least `ns`, because of memory or of arithmetic."""

    ns: int
    bound: Literal["memory", "compute"]


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of the whole step, None if unknown; the work of the roles that have ops in it, empty
    if unknown; the peak, None if unknown; the dtype of the matrix units for the roles with products
    or attention; and why the model was not used, if it was not."""

    step: StepCost | None
    work: dict[str, "RoleWork"] = field(default_factory=dict)
    peak: DatasheetPeak | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def work_limit(work: "RoleWork", peak: DatasheetPeak | None, dtype: str = "bf16") -> Limit | None:
    """The larger of bytes / bandwidth and FLOPs / peak of `dtype`; None without a peak.

    Where no peak of `dtype` is known, the highest known one decides: arithmetic takes at least as
    long as that. Without any, memory alone sets the limit. A role without work has limit 0.
    """
    if peak is None or not peak.bytes_per_s > 0:
        return None
    memory_ns = work.bytes * 1e9 / peak.bytes_per_s
    rate = peak.flops_per_s.get(dtype) or max(peak.flops_per_s.values(), default=0.0)
    compute_ns = work.flops * 1e9 / rate if rate > 0 else 0.0
    if compute_ns > memory_ns:
        return Limit(round(compute_ns), "compute")
    return Limit(round(memory_ns), "memory")


def compute_dtype(weights: "WeightFormat", activations: str) -> str:
    """The dtype of the matrix units that the product of such weights with activations of this dtype
    can use at best: 8-bit weights may be multiplied by activations of 8 bits."""
    return "fp8" if weights.compute == "fp8" else activations


def captured_cost(capture: CaptureInfo, given: DatasheetPeak | None = None) -> StepCost | None:
    """The cost of a step of one of decodescope's own runs; `given` replaces the peaks."""
    if capture.device == "cpu" or capture.bytes_per_step <= 0:
        return None
    return StepCost(
        source="capture",
        model=capture.model,
        dtype=capture.dtype,
        bytes_per_step=capture.bytes_per_step,
        flops_per_step=capture.flops_per_step,
        batch=capture.batch,
        device_name=capture.device_name,
        measured_peak_bytes_per_s=None if given else capture.measured_peak_bytes_per_s,
        **peak_fields(given or datasheet_peak(capture.device_name), capture.dtype),
    )


def peak_fields(peak: DatasheetPeak | None, dtype: str) -> dict[str, Any]:
    """The fields of `StepCost` that say the peaks."""
    if peak is None:
        return {}
    return {
        "datasheet_peak_bytes_per_s": peak.bytes_per_s,
        "peak_flops_per_s": peak.flops_per_s.get(dtype),
        "peak_source": peak.source,
    }
