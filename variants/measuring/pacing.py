"""Times decode steps as they run, and keeps the host only a few steps ahead of the device."""

from collections import deque
from time import perf_counter_ns
from typing import Protocol

import torch

from decodescope.variants.machine.clock import timing_event

RUN_AHEAD_STEPS = 2


class StepPacer(Protocol):
    """Per-step times of a decode loop, from the end of one step to the end of the next.

    On "cuda" a step's time is the device time from the end of the previous step (or from
    `before_first`) to its own end, measured with events on the current stream, so idle time that
    the host causes counts. The host waits for the step `RUN_AHEAD_STEPS` back, never for the
    newest, so timing does not leave the device idle. On "cpu" the host clock is read.
    """

    def before_first(self) -> None:
        """Mark the start of the first step, also after a pause, reset or prefill.

        Steps that were not drained are discarded.
        """

    def after_step(self) -> list[int]:
        """Mark the end of a step; returns the times in ns of newly finished steps, oldest first."""

    def drain(self) -> list[int]:
        """Wait for all marked steps; returns the times in ns not yet returned, oldest first."""


def step_pacer(device: str) -> StepPacer:
    """The pacer of "cuda" or "cpu"."""
    return _CudaEvents() if device.startswith("cuda") else _HostClock()


class _HostClock:
    def __init__(self) -> None:
        self._last_ns = 0

    def before_first(self) -> None:
        self._last_ns = perf_counter_ns()

    def after_step(self) -> list[int]:
        now_ns = perf_counter_ns()
        step_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        return [step_ns]

    def drain(self) -> list[int]:
        return []


class _CudaEvents:
    def __init__(self) -> None:
        self._marks: deque[torch.cuda.Event] = deque()
        self._spare: list[torch.cuda.Event] = []

    def before_first(self) -> None:
        self._spare.extend(self._marks)
        self._marks.clear()
        self._mark()

    def after_step(self) -> list[int]:
        self._mark()
        if len(self._marks) <= RUN_AHEAD_STEPS + 1:
            return []
        self._marks[1].synchronize()
        return [self._pop_step_ns()]

    def drain(self) -> list[int]:
        if len(self._marks) < 2:
            return []
        self._marks[-1].synchronize()
        return [self._pop_step_ns() for _ in range(len(self._marks) - 1)]

    def _mark(self) -> None:
        event = self._spare.pop() if self._spare else timing_event()
        event.record()
        self._marks.append(event)

    def _pop_step_ns(self) -> int:
        start = self._marks.popleft()
        step_ms: float = start.elapsed_time(self._marks[0])
        self._spare.append(start)
        return round(step_ms * 1e6)
