"""A report's figures per decode step, for screens and tables."""

from decodescope.analyzer.schema.report import Report


def launch_calls_per_step(report: Report) -> float | None:
    """Mean launch calls of a step; None for a trace without steps."""
    return _mean([step.launch_calls for step in report.steps])


def gpu_ops_per_step(report: Report) -> float | None:
    """Mean GPU ops of a step; None for a trace without steps."""
    return _mean([step.gpu_ops for step in report.steps])


def idle_fraction(report: Report) -> float | None:
    """Idle time ÷ window, summed over the devices; None if no device was active."""
    window_ns = sum(device.window_ns for device in report.devices)
    if window_ns <= 0:
        return None
    return sum(device.idle_ns for device in report.devices) / window_ns


def communication_fraction(report: Report) -> float | None:
    """Communication time ÷ window, summed over the devices; None if no device was active."""
    window_ns = sum(device.window_ns for device in report.devices)
    if window_ns <= 0:
        return None
    return sum(device.communication_ns for device in report.devices) / window_ns


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None
