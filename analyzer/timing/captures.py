"""Graph captures: launch calls that record work into a graph and run nothing."""

import re
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.timing.intervals import Union, union
from decodescope.analyzer.timing.launches import (
    BEGIN_CAPTURE,
    END_CAPTURE,
    KERNEL_LAUNCH,
    calls_named,
    while_capturing,
)
from decodescope.analyzer.trace import Intervals, Trace

_INSTANTIATE = re.compile(r"GraphInstantiate|GraphUpload")


@dataclass(frozen=True, slots=True, eq=False)
class GraphCaptures:
    """`count` captures, the kernel `launches` that they recorded, and the time of the captures and
    of making executable graphs of them."""

    count: int
    launches: int
    during: Union


def find_captures(trace: Trace) -> GraphCaptures:
    """The graph captures of a trace. One that began before the trace, or had not ended with it,
    lasts from the first call or to the last one of its thread."""
    calls = trace.calls
    begins, ends = calls_named(trace, BEGIN_CAPTURE), calls_named(trace, END_CAPTURE)
    recorded = calls_named(trace, KERNEL_LAUNCH) & while_capturing(trace)
    recorded[trace.ops.launch[trace.ops.launch >= 0]] = False
    made = calls_named(trace, _INSTANTIATE)
    spans = [Intervals(calls.start_ns[made], calls.end_ns[made])]
    count = 0
    for mine in calls.by_thread() if begins.any() or ends.any() else ():
        thread = calls.take(mine)
        start_ns, end_ns = thread.start_ns[begins[mine]], thread.end_ns[ends[mine]]
        if len(end_ns) and (not len(start_ns) or start_ns[0] > end_ns[0]):
            start_ns = np.concatenate((thread.start_ns[:1], start_ns))
        last_ns = int(thread.end_ns.max())
        until_ns = np.append(end_ns, last_ns)[np.searchsorted(end_ns, start_ns)]
        spans.append(Intervals(start_ns, until_ns))
        count += len(start_ns)
    spans_ns = Intervals.concatenate(spans)
    spans_ns = spans_ns.take(np.argsort(spans_ns.start_ns, kind="stable"))
    launches = len(np.unique(calls.correlation[recorded]))
    return GraphCaptures(count, launches, union(spans_ns.start_ns, spans_ns.end_ns))
