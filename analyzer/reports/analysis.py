"""One trace in, all its figures out."""

from dataclasses import dataclass, fields, replace

from decodescope.analyzer.attribution.capture_choice import choose_captures
from decodescope.analyzer.attribution.ranges import Ranges, attribution, find_ranges
from decodescope.analyzer.reports.device_report import device_reports
from decodescope.analyzer.reports.gap_report import idle_by_name, largest_gaps
from decodescope.analyzer.reports.given import NOTHING, Given
from decodescope.analyzer.reports.health import health
from decodescope.analyzer.reports.identity import no_verdict
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, launch_report
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.roofline.roofline import OpWork, op_work
from decodescope.analyzer.roofline.verdict import Evidence, verdict
from decodescope.analyzer.roofline.waterfall import waterfall
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Observer, Report, StepReport
from decodescope.analyzer.timing.step_timeline import StepTimeline, step_timeline
from decodescope.analyzer.timing.timeline import Timeline, find_timeline, step_idle_ns
from decodescope.analyzer.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Analysis(Timeline):
    """A report, and the timeline, ranges and work of each op that it was built from, for views that
    draw time."""

    ranges: Ranges
    work: OpWork
    report: Report

    def step_timeline(self, index: int = -1) -> StepTimeline | None:
        """What ran when in one step, None if there is no such step or it launched nothing."""
        return step_timeline(self, index)


def analyze(trace: Trace, given: Given = NOTHING) -> Analysis:
    """Compute every figure of `Report`. Works for any trace, also one without GPU activity.

    Raises:
        InputError: what is `given` beside the trace is not what it should be.
    """
    timeline = find_timeline(trace)
    if given.captures:
        timeline = _with_captures(timeline, given.captures)
        trace = timeline.trace
    ranges = find_ranges(timeline)
    work = op_work(trace, ranges.reference_op)
    devices = device_reports(timeline)
    launches = launch_report(timeline)
    observer = _observer(timeline)
    found = health(timeline, observer, ranges.tree.cut)
    steps = _step_reports(timeline)
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
        or verdict(Evidence(devices, launches, steps, trace.capture, observer)),
        capture=trace.capture,
        observer=observer,
        largest_gaps=largest_gaps(timeline, ranges),
        attribution=attribution(ranges),
        waterfall=() if no_verdict(found) else waterfall(timeline),
        kernels_ranked_by="critical_ns" if timeline.overlapping else "total_ns",
    )
    columns = {one.name: getattr(timeline, one.name) for one in fields(timeline)}
    return Analysis(**columns, ranges=ranges, work=work, report=report)


def _with_captures(timeline: Timeline, captures: tuple[Trace, ...]) -> Timeline:
    trace = timeline.trace
    reference, findings = choose_captures(timeline, captures)
    trace = replace(trace, reference=reference, findings=(*trace.findings, *findings))
    return replace(timeline, trace=trace)


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


def _observer(timeline: Timeline) -> Observer | None:
    trace, steps = timeline.trace, timeline.steps
    index = steps.median()
    profiled = int(steps.time_ns[index]) if index is not None else None
    unprofiled = trace.capture.unprofiled_step_ns if trace.capture else None
    if profiled is None and unprofiled is None:
        return None
    ratio = profiled / unprofiled if profiled is not None and unprofiled else None
    return Observer(unprofiled_step_ns=unprofiled, profiled_step_ns=profiled, ratio=ratio)
