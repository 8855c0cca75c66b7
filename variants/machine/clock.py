"""Times launches with device events, and captures them in CUDA graphs."""

from collections.abc import Callable
from dataclasses import dataclass
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
        return _Replay(graph, body)

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

    def mean_ns(self, call: Call, calls: int) -> float:
        """The mean time of a call, from the start of the first to the end of the last.

        Starts from an idle device after a warm-up, so that the host's launch time counts.
        """
        for _ in range(WARM_UP_CALLS):
            call()
        torch.cuda.synchronize()
        first, last = timing_event(), timing_event()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        total_ns: float = first.elapsed_time(last) * 1e6
        return total_ns / calls


@dataclass(frozen=True, slots=True)
class _Replay:
    """A captured graph. Holding `body` keeps alive the tensors whose addresses the graph uses."""

    graph: torch.cuda.CUDAGraph
    body: Call

    def __call__(self) -> None:
        self.graph.replay()


def timing_event() -> torch.cuda.Event:
    """A CUDA event that records its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
