"""The structures of kernels: durations, critical times, and how near they come to a limit."""

from typing import Literal

from msgspec import Struct


class Roofline(Struct, frozen=True):
    """The bytes and FLOPs of those calls of a kernel for which both are known (`calls` of them).

    `total_ns` is the sum of the durations of those calls. `limit` says which of the two takes
    longer at the device's peaks, `share_of_limit` = that time / `total_ns` (above 1 if a cache
    served the bytes); both are null if the peaks that decide it are unknown. A kernel that overlaps
    waits for the one before it during part of its duration; then the rates and the share are lower
    bounds.
    """

    calls: int
    total_ns: int
    bytes: int
    flops: int
    bytes_per_s: float
    flops_per_s: float
    limit: Literal["memory", "compute"] | None
    share_of_limit: float | None


class KernelReport(Struct, frozen=True):
    """`total_ns` and `mean_ns` are durations, and `share` is of the summed durations of all
    kernels, not of the window. Ops may overlap: then durations add up to more than busy time.

    `critical_ns` counts no time twice: the critical time of an op is from the later of its start
    and the latest end of the ops before it on its device, to its end, where that is positive.
    `critical_share` is of the critical time of all kernels, and equals `share` where no ops
    overlap. `short_calls` counts the calls that ran for less time than their launch call took (see
    `ShortKernels`).
    """

    name: str
    count: int
    total_ns: int
    mean_ns: int
    share: float
    short_calls: int = 0
    roofline: Roofline | None = None
    critical_ns: int = 0
    critical_share: float = 0.0
