"""The time that work takes at least on a device, and which of its peaks sets it."""

from dataclasses import dataclass
from typing import Literal

from decodescope.analyzer.modelling.role_work import RoleWork
from decodescope.analyzer.modelling.weight_format import WeightFormat
from decodescope.analyzer.roofline.peaks import DatasheetPeak


@dataclass(frozen=True, slots=True)
class Limit:
    """At least `ns`, because of memory or of arithmetic."""

    ns: int
    bound: Literal["memory", "compute"]


def work_limit(work: RoleWork, peak: DatasheetPeak | None, dtype: str = "bf16") -> Limit | None:
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


def compute_dtype(weights: WeightFormat, activations: str) -> str:
    """The dtype of the matrix units that the product of such weights with activations of this dtype
    can use at best: 8-bit weights may be multiplied by activations of 8 bits."""
    return "fp8" if weights.compute == "fp8" else activations
