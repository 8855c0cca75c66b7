"""Kernels that ran for less time than the host spent in the call that launched them."""

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.report import ShortKernels
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.trace import KERNEL, Int64s, Trace


def short_kernels(trace: Trace, launches: LaunchCalls) -> ShortKernels | None:
    """Their number, share and times; None where no kernel has a launch call of its own."""
    alone = _kernels_alone(trace, launches)
    if not alone.any():
        return None
    gpu_ns, api_ns = _times(trace, launches)
    short = alone & (gpu_ns < api_ns)
    return ShortKernels(
        count=int(short.sum()),
        share=float(short.sum() / alone.sum()),
        gpu_ns=int(gpu_ns[short].sum()),
        api_ns=int(api_ns[short].sum()),
    )


def short_kernel_ops(trace: Trace, launches: LaunchCalls) -> Int64s:
    """Which ops they are, as indices of `Trace.ops`."""
    gpu_ns, api_ns = _times(trace, launches)
    short = _kernels_alone(trace, launches) & (gpu_ns < api_ns)
    return np.asarray(launches.first_op[short], dtype=np.int64)


def _kernels_alone(trace: Trace, launches: LaunchCalls) -> NDArray[np.bool_]:
    alone = (trace.ops.kind[launches.first_op] == KERNEL) & (launches.ops == 1)
    return np.asarray(alone & ~launches.is_graph)


def _times(trace: Trace, launches: LaunchCalls) -> tuple[Int64s, Int64s]:
    """For each launch call: how long its first op ran, and how long the call took."""
    gpu_ns = trace.ops.end_ns[launches.first_op] - trace.ops.start_ns[launches.first_op]
    return gpu_ns, trace.calls.end_ns[launches.call] - trace.calls.start_ns[launches.call]
