"""The structures of kernels and of launch calls: times, nearness to a limit, the queue."""

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

    All figures are of the calls in `Report.main_steps`; of a file without times (finding
    `totals_only`), of all that it counts, as if no ops overlapped. `attributed_ns` counts no time
    twice (see `timing.attributed_time`): those of a device's ops add up to its busy time.
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


class Percentiles(Struct, frozen=True):
    """A distribution of measured values (nearest rank, never interpolated).

    `histogram` is as in `GapTotal`; its first bucket also counts values that are not positive.
    """

    p50: int
    p90: int
    p99: int
    min: int
    max: int
    histogram: tuple[tuple[int, int], ...] = ()


class QueueDepth(Struct, frozen=True):
    """Ops launched and not yet started: one queue for each device that has linked ops, over that
    device's window (its first op's start to its last op's end). A graph launch queues all its ops.

    `mean` and `empty_share` (the share of time in which a queue was empty) are weighted by time
    over all these windows; `max` is the largest depth of any one queue.

    `over_time[i]` is the largest depth of any one queue in the part [begin + i * bucket_ns,
    begin + (i + 1) * bucket_ns) of the time from the earliest window's start, `begin`, to the
    latest window's end. `bucket_ns` = ceil(that time / 120), so there are at most 120 parts; the
    last one ends with the windows. Empty, and 0, in files that older versions wrote.
    """

    mean: float
    max: int
    empty_share: float
    over_time: tuple[int, ...] = ()
    bucket_ns: int = 0


class ShortKernels(Struct, frozen=True):
    """Kernels that ran for less time than the host spent in their launch call. Only kernels that
    were launched one by one count (a graph launch serves many ops, a copy may wait inside its
    call); `share` is of those."""

    count: int
    share: float
    gpu_ns: int
    api_ns: int


class LaunchReport(Struct, frozen=True):
    """Launch calls: host API calls that put at least one GPU op on a device.

    `api_ns` = call end - call start; `queue_ns` = kernel start - call end if not negative;
    `launch_latency_ns` (TKLQT) = kernel start - call start.
    """

    calls: int
    by_api: dict[str, int]
    graph_launches: int
    gpu_ops_per_graph_launch: tuple[int, ...]
    api_ns: Percentiles | None
    queue_ns: Percentiles | None
    launch_latency_ns: Percentiles | None
    median_queue_depth: float | None
    queue_depth: QueueDepth | None = None
    short_kernels: ShortKernels | None = None


class StepTimes(Struct, frozen=True):
    p50: int
    p90: int
    p99: int
    mean: int
