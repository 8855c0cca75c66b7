"""A profiled window: which steps it runs, its description, and its capture."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import decodescope
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.variants.machine.environment import device_name
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.measuring.step_flops import StepFlops
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.step import DecodeStep

WINDOW_STEPS = 3


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`warm` steps run before the recording, `lead` are recorded without a marker, `steps` count.

    A recording begins with a synchronisation. Without a lead step the device would wait for the
    host in the first step that counts.
    """

    warm: int
    lead: int
    steps: int

    @property
    def total(self) -> int:
        """The number of all steps."""
        return self.warm + self.lead + self.steps


def window_plan(left: int, steps: int = WINDOW_STEPS) -> WindowPlan:
    """The plan of a window of up to `steps` steps when `left` tokens (at least 1) can be decoded.

    If too few are left, the window first has fewer `steps`, then no lead step, then no warm step.
    """
    warm = min(1, left - 1)
    lead = min(1, left - 1 - warm)
    return WindowPlan(warm, lead, min(steps, left - warm - lead))


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a variant of a model on a device, and figures measured on that device."""

    loaded: LoadedModel
    workload: DecodeWorkload
    device: str
    variant: str
    read_peak: ReadPeak | None = None
    kernel_floor_ns: int | None = None


def capture_info(
    subject: Subject, step: DecodeStep, plan: WindowPlan, unprofiled_step_ns: int | None
) -> CaptureInfo:
    """Describes the window that `step` runs next; bytes and FLOPs are means over its steps."""
    loaded, workload = subject.loaded, subject.workload
    first = step.position + plan.warm + plan.lead
    positions = range(first, first + plan.steps)
    flops = StepFlops(loaded.model, workload.batch)
    peak = subject.read_peak
    return CaptureInfo(
        device=subject.device,
        device_name=device_name(subject.device),
        model=loaded.name,
        weights=loaded.weights,
        variant=subject.variant,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        position=first,
        steps=plan.steps,
        bytes_per_step=mean_bytes_read(step, positions),
        unprofiled_step_ns=unprofiled_step_ns,
        decodescope_version=decodescope.__version__,
        measured_peak_bytes_per_s=peak.bytes_per_s if peak else None,
        measured_peak_at=peak.measured_at if peak else None,
        kernel_floor_ns=subject.kernel_floor_ns,
        flops_per_step=sum(map(flops.at, positions)) // plan.steps,
        lead_steps=plan.lead,
    )


def mean_bytes_read(step: DecodeStep, positions: range) -> int:
    """Mean bytes that the steps at these cache lengths must read, weights and K and V."""
    return step.weight_bytes_read + sum(map(step.kv_bytes_read, positions)) // len(positions)


def capture_window(
    step: DecodeStep,
    plan: WindowPlan,
    info: CaptureInfo,
    path: Path,
    profiler: ProfilerSession,
    reference: GraphReference | None,
    take: Callable[[torch.Tensor], object],
) -> None:
    """Profile the window of `step`, with ranges on its parts, and write it to `path`.

    `take` is called with the ids of every step. `reference` is stored in the same file, and the
    ops of graph replays have the paths of `step.node_paths`.

    Raises:
        InputError: `path` cannot be written.
    """
    # The shapes of a graph's products come with its reference.
    shapes = reference is None
    step.annotate_layers(True)
    try:
        profiler.capture(
            lambda: take(step.step()),
            plan.steps,
            path,
            info,
            plan.warm,
            reference,
            shapes,
            step.node_paths,
        )
    finally:
        step.annotate_layers(False)
