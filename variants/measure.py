"""Measures one built variant: unprofiled steps for the figures, then a profiled window."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import torch

import decodescope
from decodescope.analyzer.capture import ProfilerSession
from decodescope.analyzer.report import CaptureInfo
from decodescope.variants.environment import device_name
from decodescope.variants.memory import memory_errors
from decodescope.variants.models import LoadedModel
from decodescope.variants.pacing import StepPacer
from decodescope.variants.step import DecodeStep
from decodescope.variants.workload import DecodeWorkload

WARM_UP_STEPS = 5
WINDOW_STEPS = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a variant. `step_ns` are the unprofiled steps, oldest first; `output_token_ids`
    [batch][new_tokens] begin with the token that prefill gave. `bytes_per_step` is the mean over
    the measured steps. `capture` describes the profiled window that was written to `trace_path`.
    """

    prefill_ns: int
    step_ns: tuple[int, ...]
    prompt_token_ids: list[list[int]]
    output_token_ids: list[list[int]]
    bytes_per_step: int
    capture: CaptureInfo
    trace_path: Path


def measure_run(
    step: DecodeStep,
    loaded: LoadedModel,
    workload: DecodeWorkload,
    prompt: torch.Tensor,
    device: str,
    session: ProfilerSession,
    trace_path: Path,
    variant: str,
    window_steps: int = WINDOW_STEPS,
) -> Measurement:
    """Decode `workload.new_tokens` tokens from `prompt` [batch, context] and time every step.

    Order: prefill and a few steps to warm up; a timed prefill; the timed steps, unprofiled, paced
    so that the host is never more than a few steps ahead; then, back at the prompt's end, a step
    that is not recorded and a window of up to `window_steps` annotated steps under the profiler.
    Tokens are fetched once, after the timed steps.

    Raises:
        EnvironmentLacks: GPU memory ran out.
        InputError: `trace_path` cannot be written.
    """
    with memory_errors(f"decoding with variant {variant}", device):
        _warm_up(step, prompt, workload)
        ids, prefill_ns = _timed_prefill(step, prompt, device)
        step_ns = _timed_steps(step, workload.new_tokens, device, ids)
        output = torch.stack(ids[: workload.new_tokens], dim=1).tolist()
        bytes_per_step = _mean_bytes(step, workload)
        step.reset(workload.context)
        warm_steps = min(1, workload.new_tokens - 1)
        window_steps = min(window_steps, workload.new_tokens - warm_steps)
        typical_ns = round(median(step_ns))
        capture = capture_info(
            step, loaded, workload, device, variant, window_steps, typical_ns, warm_steps
        )
        _profiled_window(step, capture, session, trace_path, warm_steps)
    return Measurement(
        prefill_ns, step_ns, prompt.tolist(), output, bytes_per_step, capture, trace_path
    )


def capture_info(
    step: DecodeStep,
    loaded: LoadedModel,
    workload: DecodeWorkload,
    device: str,
    variant: str,
    steps: int,
    unprofiled_step_ns: int | None,
    warm_steps: int = 0,
) -> CaptureInfo:
    """What is known of a window of `steps` steps that begins `warm_steps` after the present one."""
    first = step.position + warm_steps
    kv_bytes = sum(step.kv_bytes_read(first + offset) for offset in range(steps))
    return CaptureInfo(
        device=device,
        device_name=device_name(device),
        model=loaded.name,
        weights=loaded.weights,
        variant=variant,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        position=first,
        steps=steps,
        bytes_per_step=step.weight_bytes_read + kv_bytes // steps,
        unprofiled_step_ns=unprofiled_step_ns,
        decodescope_version=decodescope.__version__,
    )


def _warm_up(step: DecodeStep, prompt: torch.Tensor, workload: DecodeWorkload) -> None:
    step.prefill(prompt)
    for _ in range(min(WARM_UP_STEPS, workload.new_tokens)):
        step.step()


def _timed_prefill(
    step: DecodeStep, prompt: torch.Tensor, device: str
) -> tuple[list[torch.Tensor], int]:
    """The first new ids, in a list for the steps to extend, and the prefill's time in ns."""
    _synchronize(device)
    began_ns = perf_counter_ns()
    first = step.prefill(prompt)
    _synchronize(device)
    return [first], perf_counter_ns() - began_ns


def _timed_steps(
    step: DecodeStep, steps: int, device: str, ids: list[torch.Tensor]
) -> tuple[int, ...]:
    pacer = StepPacer(device)
    times: list[int] = []
    pacer.before_first()
    for _ in range(steps):
        ids.append(step.step())
        times += pacer.after_step()
    return (*times, *pacer.drain())


def _profiled_window(
    step: DecodeStep,
    info: CaptureInfo,
    session: ProfilerSession,
    trace_path: Path,
    warm_steps: int,
) -> None:
    step.annotate_layers(True)
    try:
        session.capture(step.step, info.steps, trace_path, info, warm_steps)
    finally:
        step.annotate_layers(False)


def _mean_bytes(step: DecodeStep, workload: DecodeWorkload) -> int:
    positions = range(workload.context, workload.cache_length)
    kv_bytes = sum(step.kv_bytes_read(position) for position in positions)
    return step.weight_bytes_read + kv_bytes // len(positions)


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
