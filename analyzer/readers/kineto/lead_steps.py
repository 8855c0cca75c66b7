"""Leaves out of a window what was run before its first step marker.

The first recorded step follows a synchronisation, so the device waits for the host as it never does
in steady decoding. Our captures therefore begin with steps that carry no marker
(`CaptureInfo.lead_steps`); no figure counts them.
"""

from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.steps import step_markers
from decodescope.analyzer.trace import GpuOps, HostEvents, Trace

Columns = TypeVar("Columns", GpuOps, HostEvents)


def without_lead(trace: Trace) -> Trace:
    """The trace without what its capture's lead steps issued; any other trace as it is.

    Left out are the GPU ops whose launch call (whose start, where the call is unknown) lies before
    the first marker, and every API call, operator and range that began before it. Device windows so
    begin with the first op of the first marked step.
    """
    if trace.capture is None or not trace.capture.lead_steps:
        return trace
    markers = step_markers(trace)
    if not len(markers):
        return trace
    first_ns = int(trace.ranges.start_ns[markers[0]])
    launch = trace.ops.launch
    issued_ns = trace.ops.start_ns.copy()
    linked = launch >= 0
    issued_ns[linked] = trace.calls.start_ns[launch[linked]]
    kept_calls = trace.calls.start_ns >= first_ns
    ops = _rows(trace.ops, issued_ns >= first_ns)
    moved = np.cumsum(kept_calls) - 1
    linked = ops.launch >= 0
    ops.launch[linked] = moved[ops.launch[linked]]
    return replace(
        trace,
        ops=ops,
        calls=_rows(trace.calls, kept_calls),
        cpu_ops=_rows(trace.cpu_ops, trace.cpu_ops.start_ns >= first_ns),
        ranges=_rows(trace.ranges, trace.ranges.start_ns >= first_ns),
    )


def _rows(columns: Columns, kept: NDArray[np.bool_]) -> Columns:
    return replace(
        columns,
        **{field.name: getattr(columns, field.name)[kept] for field in fields(columns)},
    )
