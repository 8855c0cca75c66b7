"""A report's figures per decode step, for screens and tables.

MBU = bytes of a step ÷ step time ÷ peak. Its value differs from moment to moment, so every moment
at which a step is timed has a name.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.roofline.peaks import bandwidth, step_bandwidth
from decodescope.analyzer.schema.report import Report, StepReport
from decodescope.analyzer.schema.step_report import Bandwidth

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import Hello, Stats

Moment = Literal["now", "before the window", "in the window"]


def timed_steps(report: Report) -> tuple[StepReport, ...]:
    """The steps that the step time is a median of; all, if none has ops."""
    return tuple(step for step in report.steps if step.timed) or report.steps


def launch_calls_per_step(report: Report) -> float | None:
    """Mean launch calls of the steps that are timed; None for a trace without steps."""
    return _mean([step.launch_calls for step in timed_steps(report)])


def gpu_ops_per_step(report: Report) -> float | None:
    """Mean GPU ops of the steps that are timed; None for a trace without steps."""
    return _mean([step.gpu_ops for step in timed_steps(report)])


def idle_fraction(report: Report) -> float | None:
    """Idle time ÷ window, summed over the devices; None if no device was active."""
    return _of_window(report, sum(device.idle_ns for device in report.devices))


def communication_fraction(report: Report) -> float | None:
    """Communication time ÷ window, summed over the devices; None if no device was active."""
    return _of_window(report, sum(device.communication_ns for device in report.devices))


def _of_window(report: Report, time_ns: int) -> float | None:
    window_ns = sum(device.window_ns for device in report.devices)
    return time_ns / window_ns if window_ns > 0 else None


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


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
    """Those of a window, as far as its steps were timed; empty if the bytes of a step are unknown
    or there was no GPU."""
    cost, observer = report.step_cost, report.observer
    if cost is None or observer is None or report.on_cpu:
        return ()
    moments: tuple[tuple[Moment, int | None], ...] = (
        ("before the window", observer.unprofiled_step_ns),
        ("in the window", observer.profiled_step_ns),
    )
    return tuple(
        StepBandwidth(moment, step_ns, step_bandwidth(cost, step_ns))
        for moment, step_ns in moments
        if step_ns
    )
