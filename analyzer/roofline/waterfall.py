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

from decodescope.analyzer.schema.report import GAP_CLASSES, WaterfallPart
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.interruptions.steady import interrupted_inside
from decodescope.analyzer.timing.timeline import Timeline, idle_inside
from decodescope.analyzer.trace import Intervals

_BUSY = ("busy", "limit", "kernel_inefficiency")


def waterfall(
    timeline: Timeline,
    step: int,
    step_ns: int,
    cost: StepCost | None,
    interruptions: Sequence[Interruption] = (),
) -> tuple[WaterfallPart, ...]:
    """The parts of a step, which add up to `step_ns`, its time without interruptions.

    If the peak or the bytes are unknown (see `StepCost`), one part `busy` replaces limit and
    inefficiency.
    """
    steps = timeline.steps
    span, devices = steps.span.take(np.array([step])), steps.devices[step]
    until_ns = span.start_ns + steps.time_ns[step]
    span = Intervals(span.start_ns, np.minimum(span.end_ns, until_ns))
    interrupted_ns, interrupted_idle_ns = interrupted_inside(timeline, interruptions, devices, span)
    idle = (idle_inside(timeline.idle_of(devices), span) - interrupted_idle_ns)[0].tolist()
    used_ns = int(span.length_ns[0] - interrupted_ns[0])
    return (
        *_busy_parts(used_ns - sum(idle), cost),
        *(WaterfallPart(name, ns) for name, ns in zip(GAP_CLASSES, idle, strict=True)),
        WaterfallPart("host_tail", step_ns - used_ns),
    )


def busy_time_ns(parts: Sequence[WaterfallPart]) -> int | None:
    """The time in which the step's devices were busy; None without parts."""
    return sum(part.ns for part in parts if part.part in _BUSY) if parts else None


def _busy_parts(busy_ns: int, cost: StepCost | None) -> tuple[WaterfallPart, ...]:
    peak = None if cost is None else cost.peak_bytes_per_s
    if cost is None or not peak or not np.isfinite(peak):
        return (WaterfallPart("busy", busy_ns),)
    limit_ns = round(cost.bytes_per_step * 1e9 / peak)
    return WaterfallPart("limit", limit_ns), WaterfallPart(
        "kernel_inefficiency", busy_ns - limit_ns
    )
