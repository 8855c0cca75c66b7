"""Puts what a reader gathered into the order that `Trace` promises, and joins launches."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from decodescope.analyzer.readers.correlation import join_launches
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import GpuOps, HostEvents, Int64s

_HOST_TIES = ("name", "correlation", "tid", "pid")
_GPU_TIES = ("name", "correlation", "stream", "device")


def sorted_host_events(columns: Mapping[str, Int64s]) -> HostEvents:
    """Host events by (start, longest first), then by pid, thread, correlation and name, so that
    the order of a file does not matter. `columns` holds the fields of `HostEvents`."""
    ties = [columns[key] for key in _HOST_TIES]
    order = np.lexsort((*ties, -columns["end_ns"], columns["start_ns"]))
    taken: dict[str, Any] = {name: columns[name][order] for name in HostEvents.__slots__}
    taken["name"] = taken["name"].astype(np.int32, copy=False)
    return HostEvents(**taken)


def sorted_gpu_ops(
    columns: Mapping[str, Int64s], calls: HostEvents, findings: list[Finding]
) -> GpuOps:
    """GPU ops by (start, end, device, stream, correlation, name), each with its launch call.

    `columns` holds the fields of `GpuOps` but `launch`. Correlation ids that several calls share
    are reported to `findings`.
    """
    ties = [columns[key] for key in _GPU_TIES]
    order = np.lexsort((*ties, columns["end_ns"], columns["start_ns"]))
    taken: dict[str, Any] = {
        name: columns[name][order] for name in GpuOps.__slots__ if name != "launch"
    }
    taken["name"] = taken["name"].astype(np.int32, copy=False)
    taken["kind"] = taken["kind"].astype(np.int8, copy=False)
    launch, shared = join_launches(
        taken["start_ns"], taken["correlation"], taken["external_id"], calls
    )
    if shared:
        findings.append(
            Finding(
                "duplicate_correlation",
                f"{shared} host calls share a correlation id with another one; each op went to the "
                "call with its external id too, else to the last such call before it",
            )
        )
    return GpuOps(**taken, launch=launch)
