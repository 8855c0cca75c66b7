"""The work of kernels and of a step, and the least time that the peaks of the device allow.

The work of an operator that was traced with its shapes counts for the longest of the kernels that
it launched (the reduction of a split product has none). An op of a graph replay has the work of its
partner in the trace's reference.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.kernel_report import Roofline
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Int64s, Trace, rows_in

if TYPE_CHECKING:
    from decodescope.analyzer.modelling.step_work import RoleWork
    from decodescope.analyzer.modelling.weight_formats import WeightFormat


UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class OpWork:
    """One row for each op of the trace; `UNKNOWN` if the trace does not say. `peak` replaces those
    of the devices, if the user gave one."""

    bytes: Int64s
    flops: Int64s
    peak: DatasheetPeak | None = None


def op_work(trace: Trace, reference_op: Int64s, peak: DatasheetPeak | None = None) -> OpWork:
    """Bytes and FLOPs of every op; `reference_op` indexes `Trace.reference.ops`, -1 for none."""
    moved, computed = np.full((2, len(trace.ops)), UNKNOWN, dtype=np.int64)
    if trace.reference is not None:
        known = np.flatnonzero(reference_op >= 0)
        partners = [
            [UNKNOWN if figure is None else figure for figure in (op.bytes, op.flops)]
            for op in trace.reference.ops
        ]
        work = np.array(partners, dtype=np.int64).reshape(-1, 2)
        moved[known], computed[known] = work[reference_op[known]].T
    op, row = _longest_of_each_operator(trace)
    moved[op], computed[op] = trace.work.bytes[row], trace.work.flops[row]
    return OpWork(moved, computed, peak)


def rooflines(trace: Trace, work: OpWork, chosen: Int64s) -> dict[int, Roofline]:
    """By name (an index of `Trace.names`), for those of the `chosen` ops whose bytes and FLOPs are
    known.

    The peak bandwidth is the one measured with the capture, else the datasheet's; the peak
    arithmetic is the datasheet's for the capture's dtype. The dtype of other traces is unknown:
    their kernels have a limit only if memory takes longer than arithmetic at the slowest dtype.
    """
    ops = trace.ops
    known = chosen[(work.bytes[chosen] != UNKNOWN) & (work.flops[chosen] != UNKNOWN)]
    names, row = np.unique(ops.name[known], return_inverse=True)
    devices, device_row = np.unique(ops.device[known], return_inverse=True)
    of_each = [_peaks(trace, device, work.peak) for device in devices.tolist()]
    peaks = np.array(of_each).reshape(-1, 3)
    values = (
        np.ones(len(known), dtype=np.int64),
        ops.length_ns[known],
        work.bytes[known],
        work.flops[known],
        work.bytes[known] / peaks[device_row, 0],
        work.flops[known] / peaks[device_row, 1],
        work.flops[known] / peaks[device_row, 2],
    )
    totals = [np.zeros(len(names), dtype=column.dtype) for column in values]
    for total, column in zip(totals, values, strict=True):
        np.add.at(total, row, column)
    rooflines_by_name = {}
    for name, calls, total_ns, moved, computed, memory_s, compute_s, slowest_s in zip(
        names.tolist(), *(total.tolist() for total in totals), strict=True
    ):
        limit: Literal["memory", "compute"] | None = None
        if memory_s >= compute_s or memory_s >= slowest_s:
            limit = "memory"
        elif compute_s > memory_s:
            limit = "compute"
        limit_ns = (compute_s if limit == "compute" else memory_s) * 1e9
        rooflines_by_name[name] = Roofline(
            calls=calls,
            total_ns=total_ns,
            bytes=moved,
            flops=computed,
            bytes_per_s=moved * 1e9 / total_ns if total_ns else 0.0,
            flops_per_s=computed * 1e9 / total_ns if total_ns else 0.0,
            limit=limit,
            share_of_limit=limit_ns / total_ns if limit is not None and total_ns else None,
        )
    return rooflines_by_name


def _peaks(
    trace: Trace, device: int, users_peak: DatasheetPeak | None
) -> tuple[float, float, float]:
    """bytes/s, FLOP/s of the capture's dtype and of the slowest dtype; NaN if unknown."""
    capture = trace.capture
    sheet = users_peak or datasheet_peak(trace.device_names.get(device, ""))
    flops_per_s = sheet.flops_per_s if sheet else {}
    measured = capture.measured_peak_bytes_per_s if capture and not users_peak else None
    return (
        measured or (sheet.bytes_per_s if sheet else math.nan),
        flops_per_s.get(capture.dtype, math.nan) if capture else math.nan,
        min(flops_per_s.values(), default=math.nan),
    )


def _longest_of_each_operator(trace: Trace) -> tuple[Int64s, Int64s]:
    """Ops, and the row of `Trace.work` with the work of each."""
    ops, operators = trace.ops, trace.work.external_id
    kernels = np.flatnonzero((ops.kind == KERNEL) | (ops.kind == CPU_OPERATOR))
    row = rows_in(operators, ops.external_id[kernels])
    is_known = (row >= 0) & (ops.external_id[kernels] >= 0)
    op, row = kernels[is_known], row[is_known]
    order = np.lexsort((-ops.length_ns[op], row))
    rows, first = np.unique(row[order], return_index=True)
    return op[order[first]], rows


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


def captured_cost(capture: CaptureInfo, users_peak: DatasheetPeak | None = None) -> StepCost | None:
    """The cost of a step of one of decodescope's own runs; `users_peak` replaces the peaks."""
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
        measured_peak_bytes_per_s=None if users_peak else capture.measured_peak_bytes_per_s,
        **peak_fields(users_peak or datasheet_peak(capture.device_name), capture.dtype),
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
