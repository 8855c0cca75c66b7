"""Times launches with device events, and captures them in CUDA graphs."""

from collections.abc import Callable
from itertools import pairwise

import torch

Call = Callable[[], object]

WARM_UP_CALLS = 3


class DeviceClock:
    """Device timings on the current CUDA device. Tests replace it where there is no GPU."""

    def capture(self, body: Call) -> Call:
        """A call that replays the launches of `body` from a CUDA graph.

        Runs `body` once before the capture, so that everything is compiled and allocated.
        """
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            body()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()

        def replay(held: Call = body) -> None:
            """Replays the graph; holds `body`, whose tensors are at the addresses that it uses."""
            graph.replay()

        return replay

    def each_ns(self, call: Call, calls: int) -> list[float]:
        """The time of each of `calls` calls, queued back to back, after a warm-up.

        An event is recorded between the calls. While a call is queued before the previous one ends,
        events measure device time only; the warm-up calls put the host ahead.
        """
        for _ in range(WARM_UP_CALLS):
            call()
        marks = [timing_event() for _ in range(calls + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        marks[-1].synchronize()
        return [before.elapsed_time(after) * 1e6 for before, after in pairwise(marks)]


def timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
