"""Where the time of one profiled step went, as parts that add up to it.

step time = limit + kernel inefficiency + idle of each class + host tail, where
limit = bytes a step must read / peak bandwidth, kernel inefficiency = busy - limit (negative where
kernels ran faster than the peak allows, which says that the bytes or the peak are wrong). Busy and
idle are those of the step's devices inside its GPU span, as far as that lies within the step time
(the next step's ops may begin before this one's have ended); the host tail is the rest of it.
"""

import numpy as np

from decodescope.analyzer.roofline.datasheet import datasheet_peak_bytes_per_s
from decodescope.analyzer.schema.report import GAP_CLASSES, WaterfallPart
from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.step_idle import gaps_of_devices, idle_between
from decodescope.analyzer.timing.steps import Steps, median_step, step_time_ns
from decodescope.analyzer.timing.timeline import Union
from decodescope.analyzer.trace import Trace


def waterfall(
    trace: Trace, unions: dict[int, Union], gaps: Gaps, launches: LaunchCalls, steps: Steps
) -> tuple[WaterfallPart, ...]:
    """The parts of the step with the median time; empty without steps.

    The limit is taken from the peak measured with the capture, else from its device's datasheet.
    Where peak or bytes are unknown, one part `busy` stands for limit and inefficiency.
    """
    index = median_step(trace, steps)
    if index is None:
        return ()
    step_ns = step_time_ns(trace, steps, index)
    start = steps.span_start_ns[index : index + 1]
    end = np.minimum(steps.span_end_ns[index : index + 1], start + step_ns)
    together = gaps_of_devices(trace, unions, gaps, launches, steps.devices[index])
    idle = idle_between(together, start, end)[0].tolist()
    used_ns = int(end[0] - start[0])
    return (
        *_busy_parts(used_ns - sum(idle), _limit_ns(trace)),
        *(WaterfallPart(name, ns) for name, ns in zip(GAP_CLASSES, idle, strict=True)),
        WaterfallPart("host_tail", step_ns - used_ns),
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
