"""The interruptions and the steady state, as a report shows them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
from decodescope.analyzer.timing.interruptions.steady import (
    InterruptedSteps,
    InterruptedTime,
    interrupted_on_device,
)
from decodescope.analyzer.timing.interruptions.typical import kinds_by_name
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Steady:
    """The steady state, and the devices and steps of the report without interruptions, for what
    judges them."""

    state: SteadyState | None
    devices: tuple[DeviceReport, ...]
    steps: tuple[StepReport, ...]


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


def steady(
    timeline: Timeline,
    interruptions: Sequence[Interruption],
    interrupted: InterruptedSteps,
    devices: Sequence[DeviceReport],
    steps: Sequence[StepReport],
) -> Steady:
    """The steady state (None on a CPU, or without an op), and what remains of devices and steps."""
    if timeline.trace.on_cpu or not devices:
        return Steady(None, tuple(devices), tuple(steps))
    interrupted_times = [
        interrupted_on_device(timeline, interruptions, device) for device in timeline.busy
    ]
    kept = tuple(_steady_device(*pair) for pair in zip(devices, interrupted_times, strict=True))
    exposed = _exposed_interrupted_ns(timeline, interruptions)
    judged = tuple(
        replace(one, exposed_communication_ns=max(one.exposed_communication_ns - exposed[d], 0))
        for one, d in zip(kept, timeline.busy, strict=True)
    )
    window_ns = sum(one.window_ns for one in kept)
    idle_ns = sum(one.idle_ns for one in kept)
    summaries = step_summaries(timeline, interrupted, steps)
    state = SteadyState(
        window_ns=window_ns,
        busy_ns=sum(one.busy_ns for one in kept),
        idle_ns=idle_ns,
        interrupted_ns=sum(one.window_ns for one in interrupted_times),
        idle_share=idle_ns / window_ns if window_ns else None,
        step_ns=max(summaries, key=lambda one: one.steps).time_ns if summaries else None,
        devices=tuple(
            SteadyDevice(
                device=one.device,
                window_ns=one.window_ns,
                busy_ns=one.busy_ns,
                idle_ns=one.idle_ns,
                interrupted_ns=less.window_ns,
                gaps={name: total.total_ns for name, total in one.gaps.items() if total.total_ns},
            )
            for one, less in zip(kept, interrupted_times, strict=True)
        ),
        steps=summaries,
    )
    return Steady(state, judged, _steady_steps(steps, interrupted))


def step_summaries(
    timeline: Timeline, interrupted: InterruptedSteps, steps: Sequence[StepReport]
) -> tuple[StepSummary, ...]:
    """The medians of each kind of step, in the order in which the kinds appear."""
    columns = timeline.steps
    kinds = kinds_by_name(timeline)
    after = columns.following
    of_kind: dict[str, list[int]] = {}
    for index in np.flatnonzero(columns.gpu_ops).tolist():
        of_kind.setdefault(kinds[index], []).append(index)
    summaries = []
    for kind, indices in of_kind.items():
        step_indices = np.array(indices)
        followed = step_indices[
            (after[step_indices] >= 0) & (columns.gpu_ops[after[step_indices]] > 0)
        ]
        timed = followed if len(followed) else step_indices
        span_ns = (columns.span.length_ns - interrupted.span_ns)[step_indices]
        busy_ns = (columns.busy_ns - interrupted.busy_ns)[step_indices]
        host_ns = [
            (steps[index].host_ns or 0) - int(interrupted.host_ns[index]) for index in step_indices
        ]
        summaries.append(
            StepSummary(
                kind=kind,
                steps=len(step_indices),
                interrupted_steps=int(
                    np.count_nonzero(
                        interrupted.time_ns[step_indices] | interrupted.host_ns[step_indices]
                    )
                ),
                time_ns=_median((columns.time_ns - interrupted.time_ns)[timed]),
                host_ns=_median(np.array(host_ns, dtype=np.int64)),
                gpu_span_ns=_median(span_ns),
                busy_ns=_median(busy_ns),
                idle_ns=_median(span_ns - busy_ns),
                launch_calls=_median(columns.launch_calls[step_indices]),
                gpu_ops=_median(columns.gpu_ops[step_indices]),
            )
        )
    return tuple(summaries)


def _median(values: Int64s) -> int:
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _steady_device(device: DeviceReport, interrupted: InterruptedTime) -> DeviceReport:
    if not interrupted.window_ns:
        return device
    gaps = _without(device.gaps, dict(zip(GAP_CLASSES, interrupted.idle_ns.tolist(), strict=True)))
    labels = dict(zip(HOST_WAIT_LABELS, interrupted.host_wait_ns.tolist(), strict=True))
    return replace(
        device,
        window_ns=device.window_ns - interrupted.window_ns,
        busy_ns=device.busy_ns - interrupted.busy_ns,
        idle_ns=device.idle_ns - int(interrupted.idle_ns.sum()),
        gaps=gaps,
        host_wait=_without(device.host_wait, labels),
    )


def _without(totals: dict[str, GapTotal], lost_ns: dict[str, int]) -> dict[str, GapTotal]:
    return {
        name: replace(total, total_ns=total.total_ns - lost_ns[name])
        for name, total in totals.items()
    }


def _exposed_interrupted_ns(
    timeline: Timeline, interruptions: Sequence[Interruption]
) -> Counter[int]:
    """How long single ops that communicate interrupted each device, while nothing else ran."""
    trace, exposed = timeline.trace, Counter[int]()
    for interruption in interruptions:
        name = trace.names[trace.ops.name[interruption.op]]
        if interruption.cause == "long_op" and kernel_meaning(name).communication:
            exposed[interruption.device] += interruption.length_ns
    return exposed


def _steady_steps(
    steps: Sequence[StepReport], interrupted: InterruptedSteps
) -> tuple[StepReport, ...]:
    return tuple(
        step
        if not interrupted.span_ns[step.index] or step.gpu_span_ns is None or step.idle_ns is None
        else replace(
            step,
            gpu_span_ns=step.gpu_span_ns - int(interrupted.span_ns[step.index]),
            busy_ns=step.busy_ns - int(interrupted.busy_ns[step.index]),
            idle_ns=step.idle_ns - int(interrupted.idle_ns[step.index].sum()),
            gaps=_less(step.gaps, idle_by_name(interrupted.idle_ns[step.index])),
        )
        for step in steps
    )


def _less(gaps: dict[str, int], lost_ns: dict[str, int]) -> dict[str, int]:
    kept = {name: ns - lost_ns.get(name, 0) for name, ns in gaps.items()}
    return {name: ns for name, ns in kept.items() if ns}
