"""One trace in, all its figures out."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from decodescope.analyzer.attribution.ranges import Ranges, attribution, find_ranges
from decodescope.analyzer.reports.device_report import device_reports
from decodescope.analyzer.reports.gap_report import idle_by_name, largest_gaps
from decodescope.analyzer.reports.health import health
from decodescope.analyzer.reports.identity import no_verdict
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, launch_report
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.reports.steady_report import held_up_reports, steady
from decodescope.analyzer.roofline.roofline import OpWork, op_work
from decodescope.analyzer.roofline.verdict import Evidence, verdict
from decodescope.analyzer.roofline.waterfall import waterfall
from decodescope.analyzer.schema.report import (
    SCHEMA_VERSION,
    Observer,
    Report,
    StepReport,
    WaterfallPart,
)
from decodescope.analyzer.timing.held_up.comparing import HeldUp
from decodescope.analyzer.timing.held_up.find import find_held_up
from decodescope.analyzer.timing.held_up.steady import HeldInSteps, held_in_steps, steady_step
from decodescope.analyzer.timing.step_timeline import StepTimeline, step_timeline
from decodescope.analyzer.timing.timeline import Timeline, find_timeline, step_idle_ns
from decodescope.analyzer.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Analysis(Timeline):
    """A report, and the timeline, ranges, work of each op and held-up intervals that it was built
    from, for views that draw time. `median_step` is the one that the waterfall is of, None if no
    step launched anything."""

    ranges: Ranges
    work: OpWork
    held_up: tuple[HeldUp, ...]
    median_step: int | None
    report: Report

    def step_timeline(self, index: int = -1) -> StepTimeline | None:
        """What ran when in one step, None if there is no such step or it launched nothing."""
        return step_timeline(self, index)


def analyze(trace: Trace) -> Analysis:
    """Compute every figure of `Report`. Works for any trace, also one without GPU activity."""
    timeline = find_timeline(trace)
    ranges = find_ranges(timeline)
    work = op_work(trace, ranges.reference_op)
    devices = device_reports(timeline)
    launches = launch_report(timeline)
    held_up = find_held_up(timeline)
    taken = held_in_steps(timeline, held_up)
    step = steady_step(timeline.steps, taken)
    observer = _observer(timeline, step, taken)
    held_reports = held_up_reports(timeline, held_up)
    found = health(timeline, observer, held_reports, ranges.tree.cut)
    steps = _step_reports(timeline)
    kept = steady(timeline, held_up, taken, devices, steps)
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        health=found,
        devices=devices,
        launches=launches,
        steps=steps,
        kernels=kernel_reports(timeline, work),
        ranges=range_reports(timeline, ranges),
        verdict=no_verdict(found)
        or verdict(
            Evidence(
                *(kept.devices, launches, kept.steps, trace.capture, observer),
                whole="the steady state" if held_up else "the window",
            )
        ),
        capture=trace.capture,
        observer=observer,
        largest_gaps=largest_gaps(timeline, ranges),
        attribution=attribution(ranges),
        waterfall=_waterfall(timeline, observer, step, held_up) if not no_verdict(found) else (),
        kernels_ranked_by="critical_ns" if timeline.overlapping else "total_ns",
        held_up=held_reports,
        steady=kept.state,
    )
    columns = {one.name: getattr(timeline, one.name) for one in fields(timeline)}
    return Analysis(
        **columns, ranges=ranges, work=work, held_up=held_up, median_step=step, report=report
    )


def _step_reports(timeline: Timeline) -> tuple[StepReport, ...]:
    trace, steps = timeline.trace, timeline.steps
    rows = zip(
        trace.ranges.length_ns[steps.marker].tolist(),
        steps.busy_ns.tolist(),
        steps.span.length_ns.tolist(),
        steps.gpu_ops.tolist(),
        steps.launch_calls.tolist(),
        step_idle_ns(timeline),
        strict=True,
    )
    return tuple(
        StepReport(
            index=index,
            name=timeline.step_name(index),
            host_ns=host_ns,
            gpu_span_ns=span_ns if gpu_ops else None,
            busy_ns=busy_ns,
            idle_ns=span_ns - busy_ns if gpu_ops else None,
            launch_calls=calls,
            gpu_ops=gpu_ops,
            gaps=idle_by_name(idle_ns),
        )
        for index, (host_ns, busy_ns, span_ns, gpu_ops, calls, idle_ns) in enumerate(rows)
    )


def _waterfall(
    timeline: Timeline, observer: Observer | None, step: int | None, held_up: Sequence[HeldUp]
) -> tuple[WaterfallPart, ...]:
    if step is None or observer is None or observer.profiled_step_ns is None:
        return ()
    return waterfall(timeline, step, observer.profiled_step_ns, held_up)


def _observer(timeline: Timeline, step: int | None, taken: HeldInSteps) -> Observer | None:
    """The time of the profiled `step`, without what held it up, beside the unprofiled one."""
    trace, steps = timeline.trace, timeline.steps
    profiled = int(steps.time_ns[step] - taken.time_ns[step]) if step is not None else None
    unprofiled = trace.capture.unprofiled_step_ns if trace.capture else None
    if profiled is None and unprofiled is None:
        return None
    ratio = profiled / unprofiled if profiled is not None and unprofiled else None
    return Observer(unprofiled_step_ns=unprofiled, profiled_step_ns=profiled, ratio=ratio)
