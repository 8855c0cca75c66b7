"""The gap between kernels that the host had queued long before: what no variant gets below."""

import numpy as np

from decodescope.analyzer.timing.gaps import QUEUED_AHEAD_NS
from decodescope.analyzer.trace import KERNEL, Trace

MIN_GAPS = 100
_PERCENT = 99


def kernel_floor_ns(trace: Trace) -> int | None:
    """The 99th percentile (nearest rank) of the gaps between consecutive kernels of a burst.

    `trace` is a recording of short kernels that were all queued behind a long one. A gap counts
    where the launch call of the kernel after it had returned at least `QUEUED_AHEAD_NS` before the
    gap began. None where fewer than `MIN_GAPS` gaps count: the host was not ahead.
    """
    ops, calls = trace.ops, trace.calls
    kernels = np.flatnonzero((ops.kind == KERNEL) & (ops.launch >= 0))
    before, after = kernels[:-1], kernels[1:]
    gap_ns = ops.start_ns[after] - ops.end_ns[before]
    queued = calls.end_ns[ops.launch[after]] + QUEUED_AHEAD_NS <= ops.end_ns[before]
    counted = np.sort(gap_ns[queued & (ops.stream[before] == ops.stream[after])])
    if len(counted) < MIN_GAPS:
        return None
    return int(counted[-(-len(counted) * _PERCENT // 100) - 1])
