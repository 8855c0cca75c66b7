"""What must hold for the report of any trace, however odd."""

import msgspec

from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import DeviceReport, Report
from decodescope.analyzer.trace import Trace


def analyzed(trace: Trace) -> Analysis:
    """Analyse it and check every sum that a report promises."""
    analysis = analyze(trace)
    report = msgspec.json.decode(msgspec.json.encode(analysis.report), type=Report)
    assert sum(device.gpu_ops for device in report.devices) == len(trace.ops)
    check_report(report)
    return analysis


def check_report(report: Report) -> None:
    """Parts add up, nothing is negative, shares are shares."""
    assert report.schema_version == 3
    for device in report.devices:
        _check_device(device)
    for step in report.steps:
        assert sum(step.gaps.values()) == (step.idle_ns or 0)
        assert step.gpu_span_ns is None or 0 <= step.busy_ns <= step.gpu_span_ns
        assert (step.time_ns is None) == (step.gpu_ops == 0 and bool(report.devices))
    timed_ns = sorted(step.time_ns or 0 for step in report.steps if step.timed)
    assert report.answer.step_ns == (timed_ns[(len(timed_ns) - 1) // 2] if timed_ns else None)
    for kernel in report.kernels:
        assert 0 <= kernel.share <= 1
        assert 0 <= kernel.attributed_share <= 1
        assert 0 <= kernel.mean_ns <= kernel.total_ns
        assert 0 <= kernel.attributed_ns <= kernel.total_ns
    _check_main_steps(report)
    for gap in report.largest_gaps:
        assert sum(gap.parts.values()) == gap.length_ns
        assert sum(gap.host_wait.values()) == gap.parts.get("host_wait", 0)
    for found in report.ranges:
        assert min(found.gpu_ns, found.idle_ns) >= 0
        assert sum(found.gaps.values()) == found.idle_ns
    assert sum(report.launches.by_api.values()) == report.launches.calls
    answer = report.answer
    assert sum(part.ns for part in answer.parts) == answer.whole_ns
    assert all(part.ns >= 0 for part in answer.parts)
    assert answer.step_ns in (None, answer.whole_ns) or not report.devices
    lost = any(finding.code == "lost_kernels" for finding in report.health.findings)
    none = report.on_cpu or not report.devices
    assert none <= (answer.bound == "unknown") <= (none or lost)
    assert not (lost and answer.bound == "host")
    if report.communication is not None:
        _check_waiting(report, report.communication)
    assert all("\n" not in finding.message for finding in report.health.findings)


def _check_waiting(report: Report, waiting: CommunicationReport) -> None:
    """Own, waiting and unsplit times of each GPU add up to its communication, and to its exposed
    one."""
    devices = {device.device: device for device in report.devices}
    for one in waiting.ranks:
        device = devices[one.rank]
        parts = one.transfer_ns, one.wait_ns, one.unsplit_ns
        exposed = one.exposed_transfer_ns, one.exposed_wait_ns, one.exposed_unsplit_ns
        assert sum(parts) == one.communication_ns == device.communication_ns
        assert sum(exposed) == device.exposed_communication_ns
        assert all(0 <= part <= whole for part, whole in zip(exposed, parts, strict=True))
        assert one.last_entries <= one.collectives


def _check_main_steps(report: Report) -> None:
    """Asserts that the main steps and the time outside of them add up to the whole trace."""
    main = report.main_steps
    busy_ns = sum(device.busy_ns for device in report.devices)
    assert main.attributed_ns + main.outside_attributed_ns == busy_ns
    ops = sum(device.gpu_ops for device in report.devices)
    assert main.gpu_ops + main.outside_ops == ops
    if any(finding.code == "totals_only" for finding in report.health.findings):
        assert (ops, report.devices, report.steps) == (0, (), ())
        assert all(kernel.attributed_ns == kernel.total_ns for kernel in report.kernels)
    else:
        of_kernels = sum(kernel.attributed_ns for kernel in report.kernels)
        assert of_kernels == main.kernels_attributed_ns
        assert sum(kernel.count for kernel in report.kernels) <= main.gpu_ops
    assert sum(total.total_ns for total in main.gaps.values()) == main.all_gaps.total_ns
    assert report.launches.calls == main.launch_calls
    assert sum(row.attributed_ns for row in report.step_kinds) <= busy_ns
    assert sum(row.gpu_ops for row in report.step_kinds) == sum(
        step.gpu_ops for step in report.steps
    )
    for path in report.ranges:
        assert 0 <= path.attributed_ns <= main.attributed_ns
        assert 0 <= path.idle_ns <= main.all_gaps.total_ns
    if not main.steps:
        assert not any(step.gpu_ops for step in report.steps)
        assert not main.outside_ops
        return
    for row in report.step_kinds:
        assert (row.min_ns or 0) <= (row.median_ns or 0) <= (row.p99_ns or 0)


def _check_device(device: DeviceReport) -> None:
    assert device.busy_ns + device.idle_ns == device.window_ns
    assert 0 <= device.busy_ns <= device.window_ns
    assert device.overlap_ns >= 0
    assert 0 <= device.exposed_communication_ns <= device.communication_ns <= device.busy_ns
    assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
    assert device.all_gaps.total_ns == device.idle_ns
    waits = sum(total.total_ns for total in device.host_wait.values())
    assert waits == device.gaps["host_wait"].total_ns
    by_stream = [total.total_ns for one in device.streams for total in one.gaps.values()]
    assert not by_stream or sum(by_stream) == device.idle_ns
    for total in device.gaps.values():
        assert 0 <= total.max_ns <= total.total_ns
