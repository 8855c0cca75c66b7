"""Where the time of one profiled step went, as parts that add up to it.

step time = limit + kernel inefficiency + idle of each class + host tail, where
limit = bytes a step must read / peak bandwidth and kernel inefficiency = busy - limit (negative if
kernels ran faster than the peak allows: then the bytes or the peak are wrong). Busy and idle are
those of the step's devices inside its GPU span, up to the end of the step time (the next step's ops
may begin before this one's have ended); the host tail is the rest of the step time. What held the
step up is in none of them.
"""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.schema.report import GAP_CLASSES, Observer, WaterfallPart
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.interruptions.steady import interrupted_inside
from decodescope.analyzer.timing.timeline import Timeline, idle_inside
from decodescope.analyzer.trace import Intervals

_BUSY = ("busy", "limit", "kernel_inefficiency")


def waterfall(
    timeline: Timeline,
    step: int | None,
    observer: Observer | None,
    cost: StepCost | None,
    interruptions: Sequence[Interruption] = (),
) -> tuple[WaterfallPart, ...]:
    """The parts of a step, which add up to its profiled time without interruptions; none without a
    step.

    If the peak or the bytes are unknown (see `StepCost`), one part `busy` replaces limit and
    inefficiency.
    """
    if step is None or observer is None or observer.profiled_step_ns is None:
        return ()
    steps = timeline.steps
    span, devices = steps.span.take(np.array([step])), steps.devices[step]
    until_ns = span.start_ns + steps.time_ns[step]
    span = Intervals(span.start_ns, np.minimum(span.end_ns, until_ns))
    interrupted_ns, interrupted_idle_ns = interrupted_inside(timeline, interruptions, devices, span)
    idle = (idle_inside(timeline.idle_of(devices), span) - interrupted_idle_ns)[0].tolist()
    used_ns = int(span.length_ns[0] - interrupted_ns[0])
    busy_ns = used_ns - sum(idle)
    peak = None if cost is None else cost.peak_bytes_per_s
    if cost is None or not peak or not np.isfinite(peak):
        busy = [WaterfallPart("busy", busy_ns)]
    else:
        limit_ns = round(cost.bytes_per_step * 1e9 / peak)
        inefficiency = WaterfallPart("kernel_inefficiency", busy_ns - limit_ns)
        busy = [WaterfallPart("limit", limit_ns), inefficiency]
    return (
        *busy,
        *(WaterfallPart(name, ns) for name, ns in zip(GAP_CLASSES, idle, strict=True)),
        WaterfallPart("host_tail", observer.profiled_step_ns - used_ns),
    )


def busy_time_ns(parts: Sequence[WaterfallPart]) -> int | None:
    """The time in which the step's devices were busy; None without parts."""
    return sum(part.ns for part in parts if part.part in _BUSY) if parts else None
