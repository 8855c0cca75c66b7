"""What must hold for any bytes that are read as a trace."""

import msgspec

from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.trace import Trace


def analyzed(trace: Trace) -> Analysis:
    """Analyse it and check every sum that a report promises."""
    analysis = analyze(trace)
    report = analysis.report
    assert msgspec.json.decode(msgspec.json.encode(report))["schema_version"] == 1
    for device in report.devices:
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert 0 <= device.busy_ns <= device.window_ns
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
        waits = sum(total.total_ns for total in device.host_wait.values())
        assert waits == device.gaps["host_wait"].total_ns
        by_stream = [total.total_ns for one in device.streams for total in one.gaps.values()]
        assert not by_stream or sum(by_stream) == device.idle_ns
    for step in report.steps:
        assert sum(step.gaps.values()) == (step.idle_ns or 0)
    assert sum(device.gpu_ops for device in report.devices) == len(trace.ops)
    assert sum(report.launches.by_api.values()) == report.launches.calls
    if report.waterfall:
        assert report.observer is not None
        assert sum(part.ns for part in report.waterfall) == report.observer.profiled_step_ns
    assert all("\n" not in finding.message for finding in report.health.findings)
    return analysis
