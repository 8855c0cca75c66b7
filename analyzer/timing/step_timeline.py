"""One step as it is drawn: its ops and gaps over time."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, GpuOps

_Rows = TypeVar("_Rows", GpuOps, GapParts)


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """The ops of one device during one step and the parts of its gaps, clipped to the step, in ns
    from its first op.

    The step lasts `length_ns`, until the next step's first op: a gap after its last op is included.
    `device` is the one in reports, `names` are the trace's. Ops are sorted by start, `gaps` too.
    """

    index: int
    name: str
    device: int | str
    length_ns: int
    ops: GpuOps
    gaps: GapParts
    names: tuple[str, ...]


def step_timeline(timeline: Timeline, index: int = -1) -> StepTimeline | None:
    """The timeline of step `index` (negative counts from the end, as in a list).

    None if there is no such step or it launched nothing.
    """
    trace, steps = timeline.trace, timeline.steps
    if not -len(steps) <= index < len(steps):
        return None
    index %= len(steps)
    if not steps.gpu_ops[index]:
        return None
    start = int(steps.span.start_ns[index])
    length = int(max(steps.time_ns[index], steps.span.length_ns[index]))
    device = int(steps.device[index])
    on_device = timeline.gaps.device == device
    return StepTimeline(
        index=index,
        name=timeline.step_name(index),
        device=trace.device_label(device),
        length_ns=length,
        ops=_clipped(trace.ops, trace.ops.device == device, start, length),
        gaps=_clipped(timeline.parts, on_device[timeline.parts.gap], start, length),
        names=trace.names,
    )


def _clipped(rows: _Rows, mine: Bools, start: int, length: int) -> _Rows:
    inside = mine & (rows.start_ns < start + length) & (rows.end_ns > start)
    seen = rows.take(inside)
    return replace(
        seen,
        start_ns=np.clip(seen.start_ns - start, 0, length),
        end_ns=np.clip(seen.end_ns - start, 0, length),
    )
