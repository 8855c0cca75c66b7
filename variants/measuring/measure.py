"""Measures one built variant: paced, unprofiled steps for the figures, then a profiled window."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import torch

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.reports.distributions import step_times
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.variants.machine.clock import timing_event
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.measuring.window import (
    Subject,
    WindowPlan,
    capture_info,
    capture_window,
    mean_bytes_read,
    window_plan,
)
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.decode_step import DecodeStep

WARM_UP_STEPS = 5
MIN_TIMED_STEPS = 8
RUN_AHEAD_STEPS = 2


@dataclass(frozen=True, slots=True)
class Phases:
    """The number of warm-up steps and timed steps, and the profiled window.

    `rewind`: every phase starts again at the end of the prompt, because one generation has too few
    positions for all of them.
    """

    warm_up: int
    timed: int
    window: WindowPlan
    rewind: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a variant. `step_ns` are the timed, unprofiled steps, oldest first;
    `output_token_ids` [batch][new_tokens] begin with the token from prefill. `bytes_per_step` is
    the mean over the timed steps. `capture` describes the profiled window.
    """

    prefill_ns: int
    step_ns: tuple[int, ...]
    output_token_ids: list[list[int]]
    bytes_per_step: int
    capture: CaptureInfo


def phases(new_tokens: int) -> Phases:
    """The phases of a run that decodes `new_tokens` tokens.

    All phases come from one generation if it is long enough. Rewinding makes later phases faster
    than a real generation, because libraries cache their preparation for a KV length: on an H200,
    cuDNN's attention takes tens of milliseconds at each new length.
    """
    window = window_plan(new_tokens)
    outside = WARM_UP_STEPS + window.total
    if new_tokens >= outside + MIN_TIMED_STEPS:
        return Phases(WARM_UP_STEPS, new_tokens - outside, window, rewind=False)
    return Phases(min(WARM_UP_STEPS, new_tokens), new_tokens, window, rewind=True)


def measure_run(
    step: DecodeStep,
    subject: Subject,
    prompt: torch.Tensor,
    session: ProfilerSession,
    trace_path: Path,
    reference: GraphReference | None = None,
) -> Measurement:
    """Decode `workload.new_tokens` tokens from `prompt` [batch, context], timed and profiled.

    A warm-up prefill and a timed prefill come first, then the steps in the order of `Phases`: a few
    to warm up; the timed ones, unprofiled and paced so that the host is at most a few steps ahead;
    and a window of annotated steps under the profiler. Tokens are fetched once, at the end.
    `reference` is stored in the window's file.

    Raises:
        MissingRequirement: GPU memory ran out.
        InputError: `trace_path` cannot be written.
    """
    device, workload = subject.device, subject.workload
    plan = phases(workload.new_tokens)
    with memory_errors(f"decoding with variant {subject.variant}", device):
        step.prefill(prompt)
        _synchronize(device)
        began_ns = perf_counter_ns()
        ids = [step.prefill(prompt)]
        _synchronize(device)
        prefill_ns = perf_counter_ns() - began_ns
        ids += [step.step() for _ in range(plan.warm_up)]
        _next_phase(step, plan, workload, ids)
        first_timed = step.position
        step_ns = _timed_steps(step, plan.timed, device, ids)
        bytes_per_step = mean_bytes_read(step, range(first_timed, step.position))
        output = ids[: workload.new_tokens]
        if plan.rewind:
            # After a reset the step may overwrite the ids it returned.
            output = [step_ids.clone() for step_ids in output]
        _next_phase(step, plan, workload, ids)
        capture = capture_info(subject, step, plan.window, step_times(step_ns).p50)
        capture_window(step, plan.window, capture, trace_path, session, reference, output.append)
        output_ids = torch.stack(output[: workload.new_tokens], dim=1).tolist()
    return Measurement(prefill_ns, step_ns, output_ids, bytes_per_step, capture)


def _next_phase(
    step: DecodeStep, plan: Phases, workload: DecodeWorkload, ids: list[torch.Tensor]
) -> None:
    """Continue where the last phase ended, or rewind to the end of the prompt and its new token."""
    if plan.rewind:
        step.reset(workload.context)
        del ids[1:]


def _timed_steps(
    step: DecodeStep, steps: int, device: str, ids: list[torch.Tensor]
) -> tuple[int, ...]:
    pacer = step_pacer(device)
    times: list[int] = []
    pacer.before_first()
    for _ in range(steps):
        ids.append(step.step())
        times += pacer.after_step()
    return (*times, *pacer.drain())


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


class StepPacer:
    """Per-step times of a decode loop, from the end of one step to the end of the next.

    On "cpu" the host clock is read. On "cuda" a step's time is the device time from the end of the
    previous step (or from `before_first`) to its own end, measured with events on the current
    stream, so idle time that the host causes counts. The host waits for the step `RUN_AHEAD_STEPS`
    back, never for the newest, so timing does not leave the device idle.
    """

    def __init__(self) -> None:
        self._last_ns = 0

    def before_first(self) -> None:
        """Mark the start of the first step, also after a pause, reset or prefill.

        Steps that were not drained are discarded.
        """
        self._last_ns = perf_counter_ns()

    def after_step(self) -> list[int]:
        """Mark the end of a step; returns the times in ns of newly finished steps, oldest first."""
        before_ns, self._last_ns = self._last_ns, perf_counter_ns()
        return [self._last_ns - before_ns]

    def drain(self) -> list[int]:
        """Wait for all marked steps; returns the times in ns not yet returned, oldest first."""
        return []


def step_pacer(device: str) -> StepPacer:
    return _CudaEvents() if device.startswith("cuda") else StepPacer()


class _CudaEvents(StepPacer):
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
