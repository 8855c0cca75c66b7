"""What is known of a window before it is captured."""

from dataclasses import dataclass

import decodescope
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.variants.machine.environment import device_name
from decodescope.variants.machine.read_peak_cache import ReadPeak
from decodescope.variants.measuring.step_flops import StepFlops
from decodescope.variants.measuring.window import WindowPlan
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.step import DecodeStep


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a variant of a model on a device, and what was measured of that device."""

    loaded: LoadedModel
    workload: DecodeWorkload
    device: str
    variant: str
    read_peak: ReadPeak | None = None
    kernel_floor_ns: int | None = None


def capture_info(
    subject: Subject, step: DecodeStep, plan: WindowPlan, unprofiled_step_ns: int | None
) -> CaptureInfo:
    """The description of a window that `step` runs next; bytes and FLOPs are means of its steps."""
    loaded, workload = subject.loaded, subject.workload
    first = step.position + plan.warm + plan.lead
    positions = range(first, first + plan.steps)
    kv_bytes = sum(map(step.kv_bytes_read, positions))
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
        bytes_per_step=step.weight_bytes_read + kv_bytes // plan.steps,
        unprofiled_step_ns=unprofiled_step_ns,
        decodescope_version=decodescope.__version__,
        measured_peak_bytes_per_s=peak.bytes_per_s if peak else None,
        measured_peak_at=peak.measured_at if peak else None,
        kernel_floor_ns=subject.kernel_floor_ns,
        flops_per_step=sum(map(flops.at, positions)) // plan.steps,
        lead_steps=plan.lead,
    )
