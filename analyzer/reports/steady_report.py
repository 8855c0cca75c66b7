"""The interruptions and the steady state, as a report shows them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.reports.device_report import idle_by_name
from decodescope.analyzer.schema.interruption_report import (
    InterruptionReport,
    SteadyDevice,
    SteadyState,
    StepSummary,
)
from decodescope.analyzer.schema.report import GAP_CLASSES, DeviceReport, GapTotal, StepReport
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.interruptions.steady import InterruptedSteps, interrupted_times
from decodescope.analyzer.timing.interruptions.typical import kinds_by_name
from decodescope.analyzer.timing.intervals import covered_inside, lower_median
from decodescope.analyzer.timing.timeline import Timeline, idle_inside


def interruption_reports(
    timeline: Timeline, interruptions: Sequence[Interruption]
) -> tuple[InterruptionReport, ...]:
    """Each interruption, in order of time; ties in order of device."""
    trace = timeline.trace
    return tuple(
        InterruptionReport(
            at_ns=max(
                interruption.start_ns - int(timeline.busy[interruption.device].start_ns[0]), 0
            ),
            ns=interruption.length_ns,
            call=trace.names[trace.calls.name[interruption.call]]
            if interruption.call >= 0
            else None,
            cause=interruption.cause,
            evidence=interruption.evidence,
            device=trace.device_label(interruption.device),
            step=_step(timeline, interruption),
        )
        for interruption in sorted(
            interruptions, key=lambda interruption: (interruption.start_ns, interruption.device)
        )
    )


def _step(timeline: Timeline, interruption: Interruption) -> int | None:
    """The step of the op that ended it; the first step that began by its end, before any op."""
    if interruption.op >= 0:
        step = int(timeline.steps.op_step[interruption.op])
        return step if step >= 0 else None
    starts_ns = timeline.steps.host.start_ns[:1].tolist()
    return 0 if starts_ns and starts_ns[0] < interruption.end_ns else None


def steady_devices(
    timeline: Timeline, interruptions: Sequence[Interruption], devices: Sequence[DeviceReport]
) -> tuple[DeviceReport, ...]:
    trace = timeline.trace
    exposed_ns = Counter[int]()
    for interruption in interruptions:
        name = trace.names[trace.ops.name[interruption.op]]
        if interruption.cause == "long_op" and kernel_meaning(name).communication:
            exposed_ns[interruption.device] += interruption.length_ns
    return tuple(
        _steady_device(timeline, interruptions, device, report, exposed_ns[device])
        for device, report in zip(timeline.busy, devices, strict=True)
    )


def _steady_device(
    timeline: Timeline,
    interruptions: Sequence[Interruption],
    device: int,
    report: DeviceReport,
    exposed_ns: int,
) -> DeviceReport:
    """One device; `exposed_ns` is how long single ops that communicate interrupted it, while
    nothing else ran."""
    interrupted = interrupted_times(interruptions, (device,))
    if not len(interrupted):
        return report
    waits = timeline.host_waits.of_gaps(*timeline.gaps_of(device))
    idle_ns = idle_inside(timeline.idle_of((device,)), interrupted).sum(axis=0).tolist()
    waited_ns = idle_inside(waits, interrupted, len(HOST_WAIT_LABELS)).sum(axis=0).tolist()
    busy_ns = int(covered_inside(timeline.busy[device], interrupted).sum())
    return replace(
        report,
        window_ns=report.window_ns - int(interrupted.length_ns.sum()),
        busy_ns=report.busy_ns - busy_ns,
        idle_ns=report.idle_ns - sum(idle_ns),
        gaps=_without(report.gaps, dict(zip(GAP_CLASSES, idle_ns, strict=True))),
        host_wait=_without(report.host_wait, dict(zip(HOST_WAIT_LABELS, waited_ns, strict=True))),
        exposed_communication_ns=max(report.exposed_communication_ns - exposed_ns, 0),
    )


def _without(totals: dict[str, GapTotal], lost_ns: dict[str, int]) -> dict[str, GapTotal]:
    return {
        name: replace(total, total_ns=total.total_ns - lost_ns[name])
        for name, total in totals.items()
    }


def steady_steps(
    steps: Sequence[StepReport], interrupted: InterruptedSteps
) -> tuple[StepReport, ...]:
    """The steps without interruptions."""
    kept = list(steps)
    for index in np.flatnonzero(interrupted.span_ns).tolist():
        step, idle_ns = steps[index], interrupted.idle_ns[index]
        if step.gpu_span_ns is not None and step.idle_ns is not None:
            lost_ns = idle_by_name(idle_ns)
            gaps = {name: ns - lost_ns.get(name, 0) for name, ns in step.gaps.items()}
            kept[index] = replace(
                step,
                gpu_span_ns=step.gpu_span_ns - int(interrupted.span_ns[index]),
                busy_ns=step.busy_ns - int(interrupted.busy_ns[index]),
                idle_ns=step.idle_ns - int(idle_ns.sum()),
                gaps={name: ns for name, ns in gaps.items() if ns},
            )
    return tuple(kept)


def steady_state(
    timeline: Timeline,
    interrupted: InterruptedSteps,
    devices: Sequence[DeviceReport],
    kept: Sequence[DeviceReport],
) -> SteadyState | None:
    """The steady state, `kept` being `devices` without interruptions; None on a CPU, and without
    an op."""
    if timeline.trace.on_cpu or not devices:
        return None
    steady = tuple(
        SteadyDevice(
            device=report.device,
            window_ns=report.window_ns,
            busy_ns=report.busy_ns,
            idle_ns=report.idle_ns,
            interrupted_ns=whole.window_ns - report.window_ns,
            gaps={name: total.total_ns for name, total in report.gaps.items() if total.total_ns},
        )
        for whole, report in zip(devices, kept, strict=True)
    )
    window_ns = sum(device.window_ns for device in steady)
    idle_ns = sum(device.idle_ns for device in steady)
    summaries = _step_summaries(timeline, interrupted)
    return SteadyState(
        window_ns=window_ns,
        busy_ns=sum(device.busy_ns for device in steady),
        idle_ns=idle_ns,
        interrupted_ns=sum(device.interrupted_ns for device in steady),
        idle_share=idle_ns / window_ns if window_ns else None,
        step_ns=max(summaries, key=lambda kind: kind.steps).time_ns if summaries else None,
        devices=steady,
        steps=summaries,
    )


def _step_summaries(timeline: Timeline, interrupted: InterruptedSteps) -> tuple[StepSummary, ...]:
    """The medians of each kind of step, in the order in which the kinds appear."""
    columns = timeline.steps
    kinds = kinds_by_name(timeline)
    has_ops, after = columns.gpu_ops > 0, columns.following
    is_followed = (after >= 0) & has_ops[after]
    of_kind: dict[str, list[int]] = {}
    for index in np.flatnonzero(has_ops).tolist():
        of_kind.setdefault(kinds[index], []).append(index)
    summaries = []
    for kind, indices in of_kind.items():
        rows = np.array(indices)
        timed = rows[is_followed[rows]] if is_followed[rows].any() else rows
        span_ns = (columns.span.length_ns - interrupted.span_ns)[rows]
        busy_ns = (columns.busy_ns - interrupted.busy_ns)[rows]
        is_interrupted = interrupted.time_ns[rows] | interrupted.host_ns[rows]
        summaries.append(
            StepSummary(
                kind=kind,
                steps=len(rows),
                interrupted_steps=int(np.count_nonzero(is_interrupted)),
                time_ns=lower_median((columns.time_ns - interrupted.time_ns)[timed]),
                host_ns=lower_median((columns.host.length_ns - interrupted.host_ns)[rows]),
                gpu_span_ns=lower_median(span_ns),
                busy_ns=lower_median(busy_ns),
                idle_ns=lower_median(span_ns - busy_ns),
                launch_calls=lower_median(columns.launch_calls[rows]),
                gpu_ops=lower_median(columns.gpu_ops[rows]),
            )
        )
    return tuple(summaries)
