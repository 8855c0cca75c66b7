"""Device time of launches, by events, and CUDA graphs of them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch

Call = Callable[[], None]

WARM_UP_CALLS = 3


class Clock(Protocol):
    """What the benchmarks need of a device, so that they can be tried without one."""

    def capture(self, body: Call) -> Call:
        """A call that replays what `body` launches."""

    def each_ns(self, call: Call, calls: int) -> list[float]:
        """How long each of `calls` calls takes, one queued behind the other."""

    def mean_ns(self, call: Call, calls: int) -> float:
        """How long a call takes, from the first of `calls` to the end of the last."""


class CudaClock:
    """The `Clock` of the current CUDA device."""

    def capture(self, body: Call) -> Call:
        """`body` runs once before, so that nothing is compiled or allocated for the first time
        while the graph is captured."""
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
        """Marks between the calls: where a call is queued while the one before still runs, they
        hold device time only. Calls to warm up put the host ahead."""
        for _ in range(WARM_UP_CALLS):
            call()
        marks = [_event() for _ in range(calls + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        marks[-1].synchronize()
        return [before.elapsed_time(after) * 1e6 for before, after in pairwise(marks)]

    def mean_ns(self, call: Call, calls: int) -> float:
        """From an idle device on, so that the time the host takes to launch counts."""
        for _ in range(WARM_UP_CALLS):
            call()
        torch.cuda.synchronize()
        first, last = _event(), _event()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        total_ns: float = first.elapsed_time(last) * 1e6
        return total_ns / calls


@dataclass(frozen=True, slots=True)
class _Replay:
    """A captured graph, with what keeps the tensors alive whose addresses it remembers."""

    graph: torch.cuda.CUDAGraph
    body: Call

    def __call__(self) -> None:
        self.graph.replay()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
