"""The interruptions, as a report shows them."""

from collections.abc import Sequence

from decodescope.analyzer.schema.interruption_report import InterruptionReport
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.timeline import Timeline


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
