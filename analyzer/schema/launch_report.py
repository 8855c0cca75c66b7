"""The structures of launch calls: their times, the queue they fill, and short kernels."""

from msgspec import Struct


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
