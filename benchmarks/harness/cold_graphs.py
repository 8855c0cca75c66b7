"""CUDA graphs of calls whose operands come from memory, as in a decode step.

In a decode step each kernel reads its weights from DRAM, because the other kernels evict them from
the L2 cache. Repeated on one set of weights it would read them from L2 and look faster than it is.
So a graph of calls cycles through copies that together exceed the L2 several times.
"""

from collections.abc import Callable, Sequence

from decodescope.variants.machine.clock import Call, DeviceClock

COLD_L2_MULTIPLE = 4
MAX_COPIES = 1024
# A replay must last much longer than the host takes to launch it.
MIN_LAUNCHES = 128


def copies_needed(bytes_moved: int, l2_bytes: int) -> tuple[int, bool]:
    """The number of operand sets, and whether they exceed the L2 `COLD_L2_MULTIPLE` times. A kernel
    that would need more than `MAX_COPIES` gets one set for each of its `MIN_LAUNCHES` launches."""
    count = COLD_L2_MULTIPLE * l2_bytes // bytes_moved + 1
    return (count, True) if count <= MAX_COPIES else (MIN_LAUNCHES, False)


def launches_per_replay(copies: int) -> int:
    """Launches of whole cycles through the copies, at least `MIN_LAUNCHES`."""
    return -(-MIN_LAUNCHES // copies) * copies


def cold_timer(
    clock: DeviceClock,
    calls: Sequence[Call],
    launches: int,
    replays: int,
    first: Call | None = None,
) -> Callable[[], list[float]]:
    """Captures a graph of `launches` calls that cycle through the copies. Each reading is the time
    of a call in ns, in each of `replays` replays.

    `first` stands for the first call of a replay, where that one must not overlap with the replay
    before it.
    """

    def body() -> None:
        for index in range(launches):
            call = calls[index % len(calls)]
            (first if first is not None and index == 0 else call)()

    graph = clock.capture(body)
    return lambda: [ns / launches for ns in clock.each_ns(graph, replays)]
