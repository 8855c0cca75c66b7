"""One trace in, every figure about it out."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.gaps import (
    HOST_WAIT,
    HOST_WAIT_LABELS,
    Gaps,
    busy_by_device,
    device_label,
    find_gaps,
    gap_totals,
    largest_gaps,
)
from decodescope.analyzer.health import health
from decodescope.analyzer.kernel_table import kernel_reports
from decodescope.analyzer.launches import LaunchCalls, find_launch_calls, launch_report
from decodescope.analyzer.ranges import Ranges, find_ranges, range_reports
from decodescope.analyzer.report import (
    GAP_CLASSES,
    SCHEMA_VERSION,
    DeviceReport,
    Observer,
    Report,
)
from decodescope.analyzer.step_timeline import StepTimeline, step_timeline
from decodescope.analyzer.steps import Steps, find_steps, median_step, step_reports, step_time_ns
from decodescope.analyzer.timeline import Union, overlap_ns
from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Trace
from decodescope.analyzer.verdict import verdict
from decodescope.analyzer.waterfall import waterfall


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
    gaps = find_gaps(trace, busy, launches)
    steps = find_steps(trace, busy, launches)
    ranges = find_ranges(trace, launches)
    devices = tuple(_device_report(trace, device, busy[device], gaps) for device in busy)
    launch_figures = launch_report(trace, launches)
    observer = _observer(trace, steps)
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        health=health(trace, launches, steps),
        devices=devices,
        launches=launch_figures,
        steps=step_reports(trace, steps),
        kernels=kernel_reports(trace),
        ranges=range_reports(trace, ranges),
        verdict=verdict(devices, launch_figures, trace.capture, _step_ns(observer)),
        capture=trace.capture,
        observer=observer,
        largest_gaps=largest_gaps(trace, gaps, busy),
        waterfall=waterfall(trace, gaps, steps),
    )
    return Analysis(report, trace, busy, gaps, launches, steps, ranges)


def _device_report(trace: Trace, device: int, busy: Union, gaps: Gaps) -> DeviceReport:
    mine = np.flatnonzero(trace.ops.device == device)
    here = gaps.device == device
    kind, label = gaps.kind[here], gaps.label[here]
    length_ns = gaps.end_ns[here] - gaps.start_ns[here]
    waits = kind == HOST_WAIT
    window_ns = int(busy.end_ns[-1] - busy.start_ns[0])
    stands_for_kernel = CPU_OPERATOR if trace.on_cpu else KERNEL
    floor_ns = gaps.floors_ns[device]
    return DeviceReport(
        device=device_label(trace, device),
        name=trace.device_names.get(device, ""),
        gpu_ops=len(mine),
        kernels=int(np.count_nonzero(trace.ops.kind[mine] == stands_for_kernel)),
        window_ns=window_ns,
        busy_ns=busy.busy_ns,
        idle_ns=window_ns - busy.busy_ns,
        overlap_ns=_overlap_ns(trace, mine),
        gaps=gap_totals(kind, length_ns, GAP_CLASSES),
        host_wait=gap_totals(label[waits], length_ns[waits], HOST_WAIT_LABELS),
        kernel_floor_ns=floor_ns,
        kernel_floor_estimated=floor_ns is not None,
    )


def _overlap_ns(trace: Trace, mine: np.ndarray) -> int:
    streams = trace.ops.stream[mine]
    total = 0
    for stream in np.unique(streams):
        ops = mine[streams == stream]
        total += overlap_ns(trace.ops.start_ns[ops], trace.ops.end_ns[ops])
    return total


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
