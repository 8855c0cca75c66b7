"""What is not of the steps: single gaps and ops far outside of what the others show.

A gap or an op is compared with the instances at its place in the other steps of its kind (see
`habits`). It is held up if it is longer than each of 100 µs, 20 % of the median step, 10 x the
median of the instances, and median + 20 x the median distance from it; and if at most two
instances, or 10 % of them, are. What recurs belongs to the steps.

With fewer than three instances, or outside of steps, it is compared with all gaps of its device in
the same way, and more is asked of it. If the trace shows the cause (see `host_record.KNOWN`), it
is at least 20 % as long as a step is without such gaps; else three times as long. Without steps, it
takes at least 1 % of the window and 1 ms if the cause is shown, else 20 % and ten times what 99 %
of the gaps take. Three such gaps of similar length between ops of the same two names recur.

What is set apart is the excess over the median, so that the rest of the gap or op stays. On a CPU,
where leaf operators stand for GPU ops, nothing is.
"""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.timing.held_up.causes import HoldCauses
from decodescope.analyzer.timing.held_up.comparing import (
    FEW,
    MIN_HOLD_NS,
    MOST,
    RARE_SHARE,
    STEP_SHARE,
    HeldUp,
    Scale,
    scale_of,
)
from decodescope.analyzer.timing.held_up.held_gaps import held_gaps
from decodescope.analyzer.timing.held_up.held_ops import long_ops
from decodescope.analyzer.timing.held_up.host_record import Why
from decodescope.analyzer.timing.timeline import Timeline

_UNSEEN: frozenset[Why] = frozenset(("host", "late_start", "unlinked", "window_edge"))


def find_held_up(timeline: Timeline) -> tuple[HeldUp, ...]:
    """Everything that held the devices up, by device and time; empty for a clean trace."""
    if timeline.trace.on_cpu or not len(timeline.trace.ops):
        return ()
    causes, scale = HoldCauses(timeline), scale_of(timeline)
    found = [
        *held_gaps(timeline, causes, scale),
        *long_ops(timeline, scale),
        *_before_ops(timeline, causes, scale),
    ]
    return tuple(sorted(_single(timeline, found), key=lambda one: (one.device, one.start_ns)))


def _before_ops(timeline: Timeline, causes: HoldCauses, scale: Scale) -> Iterator[HeldUp]:
    """Calls and pauses that ended before the first launch, while the trace has no op yet: they are
    in no gap, but in the host's time of the first step."""
    trace, launches = timeline.trace, timeline.launches
    if not len(launches) or not scale.step_ns:
        return
    first = int(launches.call[0])
    first_ns = min(int(trace.calls.start_ns[first]), int(trace.ops.start_ns[0]))
    least_ns = max(MIN_HOLD_NS, int(scale.step_ns * STEP_SHARE))
    device = int(trace.ops.device[launches.first_op[0]])
    pieces = [causes.of_pause(pause) for pause in range(min(len(trace.overhead), MOST))]
    until = int(np.searchsorted(trace.calls.start_ns, first_ns))
    calls = trace.calls.take(slice(0, until))
    mine = (calls.end_ns <= first_ns) & (calls.length_ns >= least_ns)
    mine &= (calls.pid == trace.calls.pid[first]) & (calls.tid == trace.calls.tid[first])
    pieces += [causes.of_call(call) for call in np.flatnonzero(mine)[:MOST].tolist()]
    reached_ns = None
    for piece in sorted((p for p in pieces if p is not None), key=lambda p: p.start_ns):
        inside = reached_ns is not None and piece.start_ns < reached_ns
        if not piece.known or piece.end_ns > first_ns or piece.length_ns < least_ns or inside:
            continue
        reached_ns = piece.end_ns
        said = f"{piece.evidence}; before the first op of the trace"
        span = (piece.start_ns, piece.end_ns)
        yield HeldUp(device, *span, piece.why, said, piece.call, -1, span, before_ops=True)


def _single(timeline: Timeline, found: list[HeldUp]) -> list[HeldUp]:
    """`found` without unexplained ones if a device has more than three, and more than one in ten
    steps has one: a host that often pauses is of the steps."""
    unseen = [one.device for one in found if one.why in _UNSEEN]
    most = max((unseen.count(device) for device in set(unseen)), default=0)
    if most <= max(FEW, RARE_SHARE * len(timeline.steps)):
        return found
    return [one for one in found if one.why not in _UNSEEN]
