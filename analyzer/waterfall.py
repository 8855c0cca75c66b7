"""Where the time of one profiled step went, as parts that add up to it.

step time = limit + kernel inefficiency + idle of each class + host tail, where
limit = bytes a step must read / peak bandwidth, kernel inefficiency = busy - limit (negative where
kernels ran faster than the peak allows, which says that the bytes or the peak are wrong), idle is
inside the step's GPU span, and the host tail is the step time outside that span.
"""

import numpy as np

from decodescope.analyzer.datasheet import datasheet_peak_bytes_per_s
from decodescope.analyzer.report import GAP_CLASSES, WaterfallPart
from decodescope.analyzer.steps import Steps, median_step, step_time_ns
from decodescope.analyzer.trace import Int64s, Trace


def waterfall(
    trace: Trace, steps: Steps, idle_ns: Int64s, index: int | None = None
) -> tuple[WaterfallPart, ...]:
    """The parts of step `index`, by default of the step with the median time; empty without steps.

    `idle_ns` is the idle time of each step and gap class. The limit is taken from the peak measured
    with the capture, else from its device's datasheet. Where peak or bytes are unknown, one part
    `busy` stands for limit and inefficiency.
    """
    if index is None:
        index = median_step(trace, steps)
    if index is None or not steps.gpu_ops[index]:
        return ()
    span_ns = int(steps.span_end_ns[index] - steps.span_start_ns[index])
    idle = zip(GAP_CLASSES, idle_ns[index].tolist(), strict=True)
    return (
        *_busy_parts(int(steps.busy_ns[index]), _limit_ns(trace)),
        *(WaterfallPart(name, ns) for name, ns in idle),
        WaterfallPart("host_tail", step_time_ns(trace, steps, index) - span_ns),
    )


def _busy_parts(busy_ns: int, limit_ns: int | None) -> tuple[WaterfallPart, ...]:
    if limit_ns is None:
        return (WaterfallPart("busy", busy_ns),)
    return (
        WaterfallPart("limit", limit_ns),
        WaterfallPart("kernel_inefficiency", busy_ns - limit_ns),
    )


def _limit_ns(trace: Trace) -> int | None:
    capture = trace.capture
    if capture is None or capture.bytes_per_step <= 0:
        return None
    measured = capture.measured_peak_bytes_per_s
    peak = measured or datasheet_peak_bytes_per_s(capture.device_name)
    if not peak or not np.isfinite(peak):
        return None
    return round(capture.bytes_per_step * 1e9 / peak)
