"""A report's figures per decode step, for screens and tables.

MBU = bytes of a step ÷ step time ÷ peak. Its value differs from moment to moment, so every moment
at which a step is timed has a name.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.roofline.peaks import bandwidth, step_bandwidth
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import Bandwidth

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import Hello, Stats

Moment = Literal["now", "before the window", "in the window"]


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
    """Communication time ÷ window, summed over the devices; None if no device was active."""
    window_ns = sum(device.window_ns for device in report.devices)
    communication_ns = sum(device.communication_ns for device in report.devices)
    return communication_ns / window_ns if window_ns > 0 else None


def _per_step(report: Report, total: int) -> float | None:
    steps = report.main_steps.steps
    return total / steps if steps else None


@dataclass(frozen=True, slots=True)
class StepBandwidth:
    """The bandwidth of a step of `step_ns`. "now" is the median step of a run in progress, "before
    the window" the median step just before the profiled window; both are unprofiled. "in the
    window" is the median profiled step."""

    moment: Moment
    step_ns: int
    used: Bandwidth


def live_bandwidth(stats: "Stats | None", hello: "Hello | None") -> StepBandwidth | None:
    """That of the run in progress; None if nothing runs."""
    if stats is None or hello is None:
        return None
    used = bandwidth(
        stats.bytes_per_step,
        stats.step_p50_ns,
        hello.measured_peak_bytes_per_s,
        hello.datasheet_peak_bytes_per_s,
    )
    return StepBandwidth("now", stats.step_p50_ns, used)


def window_bandwidths(report: Report) -> tuple[StepBandwidth, ...]:
    """Those of a window, as far as its steps were timed; empty if the bytes of a step are not
    certain or there was no GPU."""
    cost, answer = report.step_cost, report.answer
    if cost is None or not cost.is_certain or report.on_cpu:
        return ()
    moments: tuple[tuple[Moment, int | None], ...] = (
        ("before the window", answer.unprofiled_step_ns),
        ("in the window", answer.step_ns),
    )
    return tuple(
        StepBandwidth(moment, step_ns, step_bandwidth(cost, step_ns))
        for moment, step_ns in moments
        if step_ns
    )
