"""What held the devices up, and the steady state, as a report shows them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.names.rule_files import kernel_meaning
from decodescope.analyzer.reports.gap_report import idle_by_name
from decodescope.analyzer.schema.held_up_report import (
    HeldUpReport,
    SteadyDevice,
    SteadyState,
    StepSummary,
)
from decodescope.analyzer.schema.report import GAP_CLASSES, DeviceReport, GapTotal, StepReport
from decodescope.analyzer.timing.held_up.comparing import HeldUp
from decodescope.analyzer.timing.held_up.habits import kinds_by_name
from decodescope.analyzer.timing.held_up.steady import HeldInSteps, HeldOnDevice, held_on_device
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Steady:
    """The steady state, and the devices and steps of the report without what held them up, for what
    judges them."""

    state: SteadyState | None
    devices: tuple[DeviceReport, ...]
    steps: tuple[StepReport, ...]


def held_up_reports(timeline: Timeline, held_up: Sequence[HeldUp]) -> tuple[HeldUpReport, ...]:
    """Each held-up interval, in order of time; ties in order of device."""
    trace = timeline.trace
    return tuple(
        HeldUpReport(
            at_ns=max(one.start_ns - int(timeline.busy[one.device].start_ns[0]), 0),
            ns=one.length_ns,
            call=trace.names[trace.calls.name[one.call]] if one.call >= 0 else None,
            why=one.why,
            evidence=one.evidence,
            device=trace.device_label(one.device),
            step=_step(timeline, one),
        )
        for one in sorted(held_up, key=lambda one: (one.start_ns, one.device))
    )


def _step(timeline: Timeline, one: HeldUp) -> int | None:
    """The step of the op that ended it; the first step that began by its end, before any op."""
    if one.op >= 0:
        step = int(timeline.steps.op_step[one.op])
        return step if step >= 0 else None
    starts_ns = timeline.steps.host.start_ns[:1].tolist()
    return 0 if starts_ns and starts_ns[0] < one.end_ns else None


def steady(
    timeline: Timeline,
    held_up: Sequence[HeldUp],
    taken: HeldInSteps,
    devices: Sequence[DeviceReport],
    steps: Sequence[StepReport],
) -> Steady:
    """The steady state (None on a CPU, or without an op), and what remains of devices and steps."""
    if timeline.trace.on_cpu or not devices:
        return Steady(None, tuple(devices), tuple(steps))
    lost = [held_on_device(timeline, held_up, device) for device in timeline.busy]
    kept = tuple(_steady_device(*pair) for pair in zip(devices, lost, strict=True))
    exposed = _exposed_held_ns(timeline, held_up)
    judged = tuple(
        replace(one, exposed_communication_ns=max(one.exposed_communication_ns - exposed[d], 0))
        for one, d in zip(kept, timeline.busy, strict=True)
    )
    window_ns = sum(one.window_ns for one in kept)
    idle_ns = sum(one.idle_ns for one in kept)
    summaries = step_summaries(timeline, taken, steps)
    state = SteadyState(
        window_ns=window_ns,
        busy_ns=sum(one.busy_ns for one in kept),
        idle_ns=idle_ns,
        held_up_ns=sum(one.window_ns for one in lost),
        idle_share=idle_ns / window_ns if window_ns else None,
        step_ns=max(summaries, key=lambda one: one.steps).time_ns if summaries else None,
        devices=tuple(
            SteadyDevice(
                device=one.device,
                window_ns=one.window_ns,
                busy_ns=one.busy_ns,
                idle_ns=one.idle_ns,
                held_up_ns=less.window_ns,
                gaps={name: total.total_ns for name, total in one.gaps.items() if total.total_ns},
            )
            for one, less in zip(kept, lost, strict=True)
        ),
        steps=summaries,
    )
    return Steady(state, judged, _steady_steps(steps, taken))


def step_summaries(
    timeline: Timeline, taken: HeldInSteps, steps: Sequence[StepReport]
) -> tuple[StepSummary, ...]:
    """The medians of each kind of step, in the order in which the kinds appear."""
    columns = timeline.steps
    kinds = kinds_by_name(timeline)
    after = columns.following
    of_kind: dict[str, list[int]] = {}
    for index in np.flatnonzero(columns.gpu_ops).tolist():
        of_kind.setdefault(kinds[index], []).append(index)
    found = []
    for kind, indices in of_kind.items():
        mine = np.array(indices)
        followed = mine[(after[mine] >= 0) & (columns.gpu_ops[after[mine]] > 0)]
        timed = followed if len(followed) else mine
        span_ns = (columns.span.length_ns - taken.span_ns)[mine]
        busy_ns = (columns.busy_ns - taken.busy_ns)[mine]
        host_ns = [(steps[index].host_ns or 0) - int(taken.host_ns[index]) for index in mine]
        found.append(
            StepSummary(
                kind=kind,
                steps=len(mine),
                held_up=int(np.count_nonzero(taken.time_ns[mine] | taken.host_ns[mine])),
                time_ns=_median((columns.time_ns - taken.time_ns)[timed]),
                host_ns=_median(np.array(host_ns, dtype=np.int64)),
                gpu_span_ns=_median(span_ns),
                busy_ns=_median(busy_ns),
                idle_ns=_median(span_ns - busy_ns),
                launch_calls=_median(columns.launch_calls[mine]),
                gpu_ops=_median(columns.gpu_ops[mine]),
            )
        )
    return tuple(found)


def _median(values: Int64s) -> int:
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _steady_device(device: DeviceReport, lost: HeldOnDevice) -> DeviceReport:
    if not lost.window_ns:
        return device
    gaps = _without(device.gaps, dict(zip(GAP_CLASSES, lost.idle_ns.tolist(), strict=True)))
    labels = dict(zip(HOST_WAIT_LABELS, lost.host_wait_ns.tolist(), strict=True))
    return replace(
        device,
        window_ns=device.window_ns - lost.window_ns,
        busy_ns=device.busy_ns - lost.busy_ns,
        idle_ns=device.idle_ns - int(lost.idle_ns.sum()),
        gaps=gaps,
        host_wait=_without(device.host_wait, labels),
    )


def _without(totals: dict[str, GapTotal], lost_ns: dict[str, int]) -> dict[str, GapTotal]:
    return {
        name: replace(total, total_ns=total.total_ns - lost_ns[name])
        for name, total in totals.items()
    }


def _exposed_held_ns(timeline: Timeline, held_up: Sequence[HeldUp]) -> Counter[int]:
    """How long each device was held up by single ops that communicate, while nothing else ran."""
    trace, exposed = timeline.trace, Counter[int]()
    for one in held_up:
        name = trace.names[trace.ops.name[one.op]]
        if one.why == "long_op" and kernel_meaning(name).communication:
            exposed[one.device] += one.length_ns
    return exposed


def _steady_steps(steps: Sequence[StepReport], taken: HeldInSteps) -> tuple[StepReport, ...]:
    return tuple(
        step
        if not taken.span_ns[step.index] or step.gpu_span_ns is None or step.idle_ns is None
        else replace(
            step,
            gpu_span_ns=step.gpu_span_ns - int(taken.span_ns[step.index]),
            busy_ns=step.busy_ns - int(taken.busy_ns[step.index]),
            idle_ns=step.idle_ns - int(taken.idle_ns[step.index].sum()),
            gaps=_less(step.gaps, idle_by_name(taken.idle_ns[step.index])),
        )
        for step in steps
    )


def _less(gaps: dict[str, int], lost_ns: dict[str, int]) -> dict[str, int]:
    kept = {name: ns - lost_ns.get(name, 0) for name, ns in gaps.items()}
    return {name: ns for name, ns in kept.items() if ns}
