"""The work of the step that stands for a trace: from its capture, or from a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from decodescope.analyzer.reports.given import Given
from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_cost import StepCost
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
from decodescope.analyzer.timing.timeline import Timeline

if TYPE_CHECKING:
    from decodescope.analyzer.modelling.role_work import RoleWork


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of the whole step, None if unknown; the work of the roles that have ops in it, empty
    if unknown; the peak, None if unknown; the dtype of the matrix units for the roles with products
    or attention; and why the model was not used, if it was not."""

    step: StepCost | None
    work: dict[str, "RoleWork"] = field(default_factory=dict)
    peak: DatasheetPeak | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def find_costs(
    timeline: Timeline,
    step: int | None,
    given: Given,
    structure: StructureReport,
    roles: tuple[RoleReport, ...],
) -> Costs:
    """The costs of `step`. A model that contradicts the trace is not used: a finding says where."""
    capture = timeline.trace.capture
    device_name, peak = _device(timeline, step, given)
    costs = Costs(None if capture is None else captured_cost(capture, given.peak), peak=peak)
    if (given.model is None and capture is None) or step is None or timeline.trace.on_cpu:
        return costs
    # Traces without a model need none of the modules that model one.
    from decodescope.analyzer.reports.model_costs import model_costs

    return model_costs(timeline, step, given, structure, roles, device_name, costs)


def with_costs(roles: tuple[RoleReport, ...], costs: Costs) -> tuple[RoleReport, ...]:
    """The roles with the bytes and FLOPs of each, and the time that these take at least."""
    if not costs.work:
        return roles
    from decodescope.analyzer.reports.model_costs import with_cost

    return tuple(
        with_cost(row, costs.work[row.role], costs) if row.role in costs.work else row
        for row in roles
    )


def _device(timeline: Timeline, step: int | None, given: Given) -> tuple[str, DatasheetPeak | None]:
    """The name of the device that the step ran on, and its peak: the user's, else its vendor's."""
    trace = timeline.trace
    if trace.capture is not None:
        name = trace.capture.device_name
    elif step is not None:
        name = trace.device_names.get(int(timeline.steps.device[step]), "")
    else:
        names = set(trace.device_names.values())
        name = names.pop() if len(names) == 1 else ""
    return name, given.peak or datasheet_peak(name)


def captured_cost(capture: CaptureInfo, given: DatasheetPeak | None = None) -> StepCost | None:
    """The cost of a step of one of decodescope's own runs; `given` replaces the peaks."""
    if capture.device == "cpu" or capture.bytes_per_step <= 0:
        return None
    return StepCost(
        source="capture",
        model=capture.model,
        dtype=capture.dtype,
        bytes_per_step=capture.bytes_per_step,
        flops_per_step=capture.flops_per_step,
        batch=capture.batch,
        device_name=capture.device_name,
        measured_peak_bytes_per_s=None if given else capture.measured_peak_bytes_per_s,
        **peak_fields(given or datasheet_peak(capture.device_name), capture.dtype),
    )


def peak_fields(peak: DatasheetPeak | None, dtype: str) -> dict[str, Any]:
    """The fields of `StepCost` that say the peaks."""
    if peak is None:
        return {}
    return {
        "datasheet_peak_bytes_per_s": peak.bytes_per_s,
        "peak_flops_per_s": peak.flops_per_s.get(dtype),
        "peak_source": peak.source,
    }
