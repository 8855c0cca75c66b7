"""How near kernels come to what their device can do, where their work is known."""

import math
from typing import Literal

import numpy as np

from decodescope.analyzer.roofline.datasheet import (
    datasheet_peak_bytes_per_s,
    datasheet_peak_flops_per_s,
    slowest_peak_flops_per_s,
)
from decodescope.analyzer.roofline.op_work import UNKNOWN, OpWork
from decodescope.analyzer.schema.report import Roofline
from decodescope.analyzer.trace import Trace


def rooflines(trace: Trace, work: OpWork) -> dict[int, Roofline]:
    """By name (an index of `Trace.names`), of the ops whose bytes and FLOPs are known.

    The peak bandwidth is the one measured with the capture, else the datasheet's; the peak of
    arithmetic is the datasheet's for the capture's dtype. Of a trace from elsewhere the dtype is
    not known: its kernels have a limit only where memory takes longer than arithmetic would at the
    slowest dtype.
    """
    ops = trace.ops
    known = np.flatnonzero((work.bytes != UNKNOWN) & (work.flops != UNKNOWN))
    names, row = np.unique(ops.name[known], return_inverse=True)
    devices, device_row = np.unique(ops.device[known], return_inverse=True)
    peaks = np.array([_peaks(trace, device) for device in devices.tolist()]).reshape(-1, 3)
    calls, total_ns, moved, computed = np.zeros((4, len(names)), dtype=np.int64)
    memory_s, compute_s, slowest_s = np.zeros((3, len(names)))
    for into, values in (
        (calls, np.ones(len(known), dtype=np.int64)),
        (total_ns, ops.end_ns[known] - ops.start_ns[known]),
        (moved, work.bytes[known]),
        (computed, work.flops[known]),
        (memory_s, work.bytes[known] / peaks[device_row, 0]),
        (compute_s, work.flops[known] / peaks[device_row, 1]),
        (slowest_s, work.flops[known] / peaks[device_row, 2]),
    ):
        np.add.at(into, row, values)
    columns = (calls, total_ns, moved, computed, memory_s, compute_s, slowest_s)
    rows = zip(names.tolist(), *(column.tolist() for column in columns), strict=True)
    return {name: _roofline(*figures) for name, *figures in rows}


def _peaks(trace: Trace, device: int) -> tuple[float, float, float]:
    """bytes/s, FLOP/s of the capture's dtype and of the slowest one; NaN where one is not known."""
    capture, name = trace.capture, trace.device_names.get(device, "")
    measured = capture.measured_peak_bytes_per_s if capture else None
    bytes_per_s = measured or datasheet_peak_bytes_per_s(name)
    flops_per_s = datasheet_peak_flops_per_s(name, capture.dtype) if capture else None
    slowest = slowest_peak_flops_per_s(name)
    return bytes_per_s or math.nan, flops_per_s or math.nan, slowest or math.nan


def _roofline(
    calls: int,
    total_ns: int,
    moved: int,
    computed: int,
    memory_s: float,
    compute_s: float,
    slowest_s: float,
) -> Roofline:
    limit: Literal["memory", "compute"] | None = None
    if memory_s >= compute_s or memory_s >= slowest_s:
        limit = "memory"
    elif compute_s > memory_s:
        limit = "compute"
    limit_ns = (compute_s if limit == "compute" else memory_s) * 1e9
    return Roofline(
        calls=calls,
        total_ns=total_ns,
        bytes=moved,
        flops=computed,
        bytes_per_s=moved * 1e9 / total_ns if total_ns else 0.0,
        flops_per_s=computed * 1e9 / total_ns if total_ns else 0.0,
        limit=limit,
        share_of_limit=limit_ns / total_ns if limit is not None and total_ns else None,
    )
