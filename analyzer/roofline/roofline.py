"""The work of kernels and of a step, and the least time that the peaks of the device allow.

The work of an operator that was traced with its shapes counts for the longest of the kernels that
it launched (the reduction of a split product has none). An op of a graph replay has the work of its
partner in the trace's reference.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.answer import LimitBound
from decodescope.analyzer.schema.kernel_report import Roofline
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Int64s, Trace, rows_in

if TYPE_CHECKING:
    from decodescope.analyzer.modelling.step_work import RoleWork
    from decodescope.analyzer.modelling.weight_formats import WeightFormat


UNKNOWN = -1
# Words for the dtype of a product's operands: of PyTorch, CUTLASS, cuBLAS (nvjet: t is bf16, h is
# fp16, q is fp8) and Tensile (B is bf16, H fp16, F8 fp8). The first that is found decides.
_DTYPE_OF_NAME = (
    ("fp4", re.compile(r"(?i:fp4|e2m1|a4w4)")),
    ("fp8", re.compile(r"(?i:fp8|float8|e4m3|e5m2|a8w8|w8a8)|_F8|nvjet_\w*?qq")),
    (
        "bf16",
        re.compile(r"(?i:bf16|bfloat16|f16|half)|_(?:BBS|HHS|BB?H|HB?H)_|nvjet_\w*?(?:tst|hsh)"),
    ),
)


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


def rooflines(
    trace: Trace, work: OpWork, chosen: Int64s, number: NDArray[np.integer]
) -> dict[int, Roofline]:
    """By `number` (one for each op of the trace, as that of its name), for those of the `chosen`
    ops whose bytes and FLOPs are known.

    The peak bandwidth is the one measured with the capture, else the datasheet's; the peak
    arithmetic is the datasheet's for the capture's dtype. The dtype of other traces is unknown:
    their kernels have a limit only if memory takes longer than arithmetic at the slowest dtype.
    """
    ops = trace.ops
    known = chosen[(work.bytes[chosen] != UNKNOWN) & (work.flops[chosen] != UNKNOWN)]
    names, row = np.unique(number[known], return_inverse=True)
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
    bound: LimitBound


@dataclass(frozen=True, slots=True)
class LimitedWork:
    """Bytes and FLOPs, and the least time that they take; None without a peak."""

    bytes: int
    flops: int
    limit: Limit | None


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of the whole step, None if unknown; the work of its parts, by a model if the cost is
    known, else by the shapes in the trace, empty if unknown; and what there is to say about the
    model."""

    step: StepCost | None = None
    parts: Mapping[str, LimitedWork] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def limited_work(work: "RoleWork", peak: DatasheetPeak | None, dtype: str = "bf16") -> LimitedWork:
    """The work, and the larger of bytes / bandwidth and FLOPs / peak of `dtype`.

    Where no peak of `dtype` is known, the highest known one decides: arithmetic takes at least as
    long as that. Without any, memory alone sets the limit. A role without work has limit 0.
    """
    if peak is None or not peak.bytes_per_s > 0:
        return LimitedWork(work.bytes, work.flops, None)
    memory_ns = work.bytes * 1e9 / peak.bytes_per_s
    rate = _rate(peak.flops_per_s, dtype)
    compute_ns = work.flops * 1e9 / rate if rate > 0 else 0.0
    limit = Limit(round(memory_ns), "memory")
    if compute_ns > memory_ns:
        limit = Limit(round(compute_ns), "compute")
    return LimitedWork(work.bytes, work.flops, limit)


def limits_by_shapes(
    trace: Trace, work: OpWork, ops: Int64s, ns: Int64s, part: Int64s, peak: DatasheetPeak | None
) -> dict[int, LimitedWork]:
    """The work of each part: that of those of the `ops` whose bytes and FLOPs the trace tells
    (`record_shapes`). `ns` is the attributed time of each of them, `part` the number of its part.

    The limit of an op is the larger of bytes / bandwidth and FLOPs / peak of the dtype that its
    name says, else of the fastest dtype, and no longer than its attributed time: a cache may have
    served its bytes. Those of a part are summed, so they are a lower bound: other ops may be in it.
    Where those take over 90 % of its time, the limit would say nothing of the part: it has none.
    """
    is_known = (work.bytes[ops] != UNKNOWN) & (work.flops[ops] != UNKNOWN)
    part_ns = np.bincount(part, ns)
    known, ns, part = ops[is_known], ns[is_known], part[is_known]
    is_telling = 10 * np.bincount(part, ns, len(part_ns)) >= part_ns
    memory_ns, compute_ns = np.zeros((2, len(known)))
    if peak is not None and len(known):
        names, row = np.unique(trace.ops.name[known], return_inverse=True)
        dtypes = [product_dtype(trace.names[name]) for name in names.tolist()]
        rates = np.array([_rate(peak.flops_per_s, dtype) or math.inf for dtype in dtypes])
        memory_ns = work.bytes[known] * 1e9 / peak.bytes_per_s
        compute_ns = work.flops[known] * 1e9 / rates[row]
    limit_ns = np.minimum(np.maximum(memory_ns, compute_ns), ns)
    limits = {}
    for number in np.unique(part[is_telling[part]]).tolist():
        own = part == number
        total_ns = int(limit_ns[own].sum())
        by_compute_ns = limit_ns[own & (compute_ns > memory_ns)].sum()
        bound: LimitBound = "compute" if 2 * by_compute_ns > total_ns else "memory"
        limits[number] = LimitedWork(
            bytes=int(work.bytes[known[own]].sum()),
            flops=int(work.flops[known[own]].sum()),
            limit=None if peak is None else Limit(total_ns, bound),
        )
    return limits


def product_dtype(name: str) -> str | None:
    """The dtype of the matrix units that a product uses by its kernel's name, None if the name does
    not say."""
    return next((dtype for dtype, pattern in _DTYPE_OF_NAME if pattern.search(name)), None)


def _rate(flops_per_s: Mapping[str, float], dtype: str | None) -> float:
    """FLOP/s at `dtype`; without a figure for it, those of the fastest dtype, 0 without any."""
    return flops_per_s.get(dtype or "") or max(flops_per_s.values(), default=0.0)


def compute_dtype(weights: "WeightFormat", activations: str) -> str:
    """The dtype of the matrix units that the product of such weights with activations of this dtype
    can use at best: floats of 8 or 4 bits may be multiplied by activations of as many bits."""
    return weights.compute if weights.compute in ("fp8", "fp4") else activations


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
    if peak is None:
        return {}
    return {
        "datasheet_peak_bytes_per_s": peak.bytes_per_s,
        "peak_flops_per_s": peak.flops_per_s.get(dtype),
        "peak_source": peak.source,
    }
