"""One trace in, every figure about it out."""

from dataclasses import dataclass

from decodescope.analyzer.attribution.ranges import Ranges, attribution, find_ranges
from decodescope.analyzer.reports.device_report import device_report
from decodescope.analyzer.reports.gap_report import largest_gaps
from decodescope.analyzer.reports.health import health
from decodescope.analyzer.reports.kernel_table import kernel_reports
from decodescope.analyzer.reports.launch_report import launch_report
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.roofline.verdict import verdict
from decodescope.analyzer.roofline.waterfall import waterfall
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Observer, Report
from decodescope.analyzer.timing.gaps import Gaps, busy_by_device, find_gaps
from decodescope.analyzer.timing.launches import LaunchCalls, find_launch_calls
from decodescope.analyzer.timing.step_idle import step_idle_ns
from decodescope.analyzer.timing.step_timeline import StepTimeline, step_timeline
from decodescope.analyzer.timing.steps import (
    Steps,
    find_steps,
    median_step,
    step_reports,
    step_time_ns,
)
from decodescope.analyzer.timing.timeline import Union
from decodescope.analyzer.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """A report and the columns it was made from, for views that draw time."""

    report: Report
    trace: Trace
    busy: dict[int, Union]
    gaps: Gaps
    launches: LaunchCalls
    steps: Steps
    ranges: Ranges

    def step_timeline(self, index: int = -1) -> StepTimeline | None:
        """What ran when in one step, None if there is no such step or it launched nothing."""
        return step_timeline(self.trace, self.gaps, self.steps, index)


def analyze(trace: Trace) -> Analysis:
    """Compute every figure of `Report`. Works for any trace, also one without GPU activity."""
    busy = busy_by_device(trace)
    launches = find_launch_calls(trace)
    gaps = find_gaps(trace, busy.values(), launches)
    steps = find_steps(trace, busy, launches)
    ranges = find_ranges(trace, launches, steps)
    idle_ns = step_idle_ns(trace, busy, gaps, launches, steps)
    devices = tuple(device_report(trace, device, busy[device], gaps) for device in busy)
    launch_figures = launch_report(trace, launches, busy)
    observer = _observer(trace, steps)
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        health=health(trace, launches, steps, observer),
        devices=devices,
        launches=launch_figures,
        steps=step_reports(trace, steps, idle_ns),
        kernels=kernel_reports(trace, launches, ranges.reference_op),
        ranges=range_reports(trace, ranges, gaps),
        verdict=verdict(devices, launch_figures, trace.capture, _step_ns(observer)),
        capture=trace.capture,
        observer=observer,
        largest_gaps=largest_gaps(trace, busy, gaps, launches, steps, ranges),
        attribution=attribution(ranges),
        waterfall=waterfall(trace, busy, gaps, launches, steps),
    )
    return Analysis(report, trace, busy, gaps, launches, steps, ranges)


def _observer(trace: Trace, steps: Steps) -> Observer | None:
    index = median_step(trace, steps)
    profiled = step_time_ns(trace, steps, index) if index is not None else None
    unprofiled = trace.capture.unprofiled_step_ns if trace.capture else None
    if profiled is None and unprofiled is None:
        return None
    ratio = profiled / unprofiled if profiled is not None and unprofiled else None
    return Observer(unprofiled_step_ns=unprofiled, profiled_step_ns=profiled, ratio=ratio)


def _step_ns(observer: Observer | None) -> int | None:
    if observer is None:
        return None
    return observer.unprofiled_step_ns or observer.profiled_step_ns
