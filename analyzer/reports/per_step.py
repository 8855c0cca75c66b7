"""A report's figures per decode step, for screens and tables."""

from dataclasses import dataclass

from decodescope.analyzer.schema.report import GAP_CLASSES, Report


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel: calls and ns per step (per trace without steps), share of kernel time; if ops
    overlap, both are of attributed time."""

    name: str
    count: float
    ns: float
    share: float


@dataclass(frozen=True, slots=True)
class GapRow(KernelRow):
    """The same of one gap class: gaps instead of calls, `share` of the window, and the largest
    single gap."""

    max_ns: int


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


def kernel_rows(report: Report) -> tuple[KernelRow, ...]:
    """The kernels in the report's order."""
    steps, attributed = len(report.steps) or 1, report.overlapping
    return tuple(
        KernelRow(
            name=kernel.name,
            count=kernel.count / steps,
            ns=(kernel.attributed_ns if attributed else kernel.total_ns) / steps,
            share=kernel.attributed_share if attributed else kernel.share,
        )
        for kernel in report.kernels
    )


def gap_rows(report: Report) -> tuple[GapRow, ...]:
    """The gap classes that occurred, over all devices, largest total first."""
    steps = len(report.steps) or 1
    window_ns = sum(device.window_ns for device in report.devices)
    rows = []
    for gap_class in GAP_CLASSES:
        found = [device.gaps[gap_class] for device in report.devices if gap_class in device.gaps]
        count = sum(total.count for total in found)
        if count:
            total_ns = sum(total.total_ns for total in found)
            share = total_ns / window_ns if window_ns > 0 else 0.0
            largest = max(total.max_ns for total in found)
            rows.append(GapRow(gap_class, count / steps, total_ns / steps, share, largest))
    return tuple(sorted(rows, key=lambda row: -row.ns))


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None
