"""Launch calls: the host API calls that put work on a device, and how long that took to start."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.host_calls import graph_launch_calls
from decodescope.analyzer.timing.queue_depth import queue_depth_at_calls
from decodescope.analyzer.trace import Int64s, Trace


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCalls:
    """One row for each call that put at least one GPU op on a device, in order of call start.

    `call` indexes `Trace.calls`, `first_op` is its earliest op in `Trace.ops`, `ops` how many it
    has. `queue_depth` counts the ops of that device that are launched and not yet started at the
    call's start, its own included (a graph launch adds all its ops).
    """

    call: Int64s
    first_op: Int64s
    ops: Int64s
    is_graph: NDArray[np.bool_]
    queue_depth: Int64s

    def __len__(self) -> int:
        return len(self.call)


def find_launch_calls(trace: Trace) -> LaunchCalls:
    """The launch calls of a trace; ops without a call in the trace take no part."""
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call, first, ops = np.unique(trace.ops.launch[linked], return_index=True, return_counts=True)
    first_op = linked[first]
    return LaunchCalls(
        call=call,
        first_op=first_op,
        ops=ops,
        is_graph=graph_launch_calls(trace)[call],
        queue_depth=queue_depth_at_calls(trace, call, first_op),
    )
