"""The work of the step that stands for a trace: from its capture, or from a model."""

from decodescope.analyzer.reports.given import Given
from decodescope.analyzer.roofline.costs import Costs, captured_cost
from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
from decodescope.analyzer.timing.timeline import Timeline


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
