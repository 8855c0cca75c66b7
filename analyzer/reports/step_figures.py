"""A report's figures per decode step, for screens and tables.

MBU = bytes of a step ÷ step time ÷ peak.
"""

from typing import TYPE_CHECKING

from decodescope.analyzer.roofline.peaks import bandwidth
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import Bandwidth

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import Hello, Stats


def launch_calls_per_step(report: Report) -> float | None:
    """Mean launch calls of a main step; None for a trace without steps."""
    return _per_step(report, report.main_steps.launch_calls)


def gpu_ops_per_step(report: Report) -> float | None:
    """Mean GPU ops of a main step; None for a trace without steps."""
    return _per_step(report, report.main_steps.gpu_ops)


def idle_fraction(report: Report) -> float | None:
    """Idle time ÷ time of the main steps on their devices; None if no device was active."""
    main = report.main_steps
    idle_ns = main.all_gaps.total_ns
    time_ns = main.busy_ns + idle_ns
    return idle_ns / time_ns if time_ns else None


def communication_fraction(report: Report) -> float | None:
    """Communication ÷ time of the main steps on their devices; None if no device was active."""
    main = report.main_steps
    time_ns = main.busy_ns + main.all_gaps.total_ns
    return main.communication_ns / time_ns if time_ns else None


def _per_step(report: Report, total: int) -> float | None:
    steps = report.main_steps.steps
    return total / steps if steps else None


def live_bandwidth(stats: "Stats | None", hello: "Hello | None") -> Bandwidth | None:
    """The bandwidth of the median step of the run in progress; None if nothing is timed."""
    if stats is None or stats.step_p50_ns is None or hello is None:
        return None
    return bandwidth(
        stats.bytes_per_step,
        stats.step_p50_ns,
        hello.measured_peak_bytes_per_s,
        hello.datasheet_peak_bytes_per_s,
    )


def window_bandwidth(report: Report) -> Bandwidth | None:
    """That of the unprofiled step where it was timed, else of the median step of the window; None
    if the bytes of a step are not certain or there was no GPU."""
    cost, answer = report.step_cost, report.answer
    step_ns = answer.unprofiled_step_ns or answer.step_ns
    if cost is None or not cost.is_certain or report.on_cpu or not step_ns:
        return None
    return bandwidth(
        cost.bytes_per_step,
        step_ns,
        cost.measured_peak_bytes_per_s,
        cost.datasheet_peak_bytes_per_s,
    )
