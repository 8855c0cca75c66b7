"""The structures of kernels: durations, attributed times, and how near they come to a limit."""

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


class LaunchShape(Struct, frozen=True):
    """How a kernel was launched; null where the trace does not say.

    `grid` is in blocks and `block` in threads (x, y, z). `registers_per_thread` of an AMD GPU are
    vector registers, accumulation registers included. `shared_memory_bytes` is what one block has,
    static and dynamic (LDS on an AMD GPU).
    """

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None


class KernelReport(Struct, frozen=True):
    """`total_ns` and `mean_ns` are durations, and `share` is of the summed durations of all
    kernels, not of the window. Ops may overlap: then durations add up to more than busy time.

    `attributed_ns` counts no time twice: the attributed time of an op is from the later of its
    start and the latest end of the ops before it on its device, to its end, where that is positive.
    `attributed_share` is of the attributed time of all kernels, and equals `share` where no ops
    overlap. `short_calls` counts the calls that ran for less time than their launch call took (see
    `ShortKernels`). `shape` is the launch shape of most calls (of equally many, the earliest), null
    if the trace has none; `shapes` counts the distinct ones.
    """

    name: str
    count: int
    total_ns: int
    mean_ns: int
    share: float
    short_calls: int = 0
    roofline: Roofline | None = None
    attributed_ns: int = 0
    attributed_share: float = 0.0
    shape: LaunchShape | None = None
    shapes: int = 0
