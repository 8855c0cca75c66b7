"""Kernel launches of which the trace shows no kernel: its end was cut off, or records were lost."""

import re

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.host_calls import calls_by_thread, calls_named
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.trace import Int64s, Trace

_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel")
_BEGIN_CAPTURE = re.compile(r"StreamBeginCapture")
_END_CAPTURE = re.compile(r"StreamEndCapture")


def lost_launches(trace: Trace, launches: LaunchCalls) -> tuple[Int64s, int]:
    """The kernel launches without an op, as indices of `Trace.calls`, and the number of all.

    Launches that their thread recorded into a graph count neither here nor there, and a call with
    the correlation id of one that has ops stands for the same launch (a driver call below a runtime
    call).
    """
    calls = trace.calls
    made = np.flatnonzero(
        calls_named(trace, _LAUNCH) & ~_while_capturing(trace) & (calls.correlation > 0)
    )
    made = made[np.sort(np.unique(calls.correlation[made], return_index=True)[1])]
    with_ops = calls.correlation[launches.call]
    return made[~np.isin(calls.correlation[made], with_ops)], len(made)


def _while_capturing(trace: Trace) -> NDArray[np.bool_]:
    """Whether each call began while its thread recorded a graph."""
    begins, ends = calls_named(trace, _BEGIN_CAPTURE), calls_named(trace, _END_CAPTURE)
    capturing = np.zeros(len(trace.calls), dtype=np.bool_)
    if begins.any():
        for mine in calls_by_thread(trace, np.arange(len(trace.calls))):
            capturing[mine] = np.cumsum(begins[mine].astype(np.int64) - ends[mine]) > 0
    return capturing
