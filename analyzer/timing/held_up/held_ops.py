"""Kernels that ran far longer than the same kernel of other steps."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.text.formatting import duration, shorten
from decodescope.analyzer.timing.held_up.comparing import (
    FEW,
    MIN_HOLD_NS,
    MOST,
    NAME_CELLS,
    UNSEEN_STEPS,
    HeldUp,
    Scale,
    is_outside,
    least_hold_ns,
    longest,
    rare,
)
from decodescope.analyzer.timing.held_up.habits import habits, upper_median
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, GpuOps

_ALONE = 0.9


def long_ops(timeline: Timeline, scale: Scale) -> Iterator[HeldUp]:
    """Kernels that ran far longer than the others at their place, while no other op ran."""
    ops = timeline.trace.ops
    length_ns, step = ops.length_ns, timeline.steps.op_step
    long = np.flatnonzero((length_ns >= MIN_HOLD_NS) & (step >= 0) & (ops.kind == KERNEL))
    long = long[length_ns[long] >= least_hold_ns(timeline, scale, long)]
    if not len(long):
        return
    habit = habits(timeline, scale.kind, long, length_ns)
    several = habit.instances >= FEW
    held = rare(habit, is_outside(length_ns[long], habit.typical_ns, habit.spread_ns) & several)
    for place in longest(length_ns[long], held):
        op, typical_ns = int(long[place]), int(habit.typical_ns[place])
        start_ns, end_ns = _alone(ops, op, typical_ns)
        if end_ns - start_ns < _ALONE * (int(length_ns[op]) - typical_ns):
            continue
        shown = f"at the same place of {int(habit.instances[place]) - 1} other steps"
        yield _long_op(timeline, op, (start_ns, end_ns), f"{duration(typical_ns)} {shown}")
    few = long[~several]
    for op in few[np.argsort(-length_ns[few], kind="stable")[:MOST]].tolist():
        yield from _few_ops(timeline, scale, op)


def _few_ops(timeline: Timeline, scale: Scale, op: int) -> Iterator[HeldUp]:
    """An op with fewer than three instances at its place, against all of its name and shape: held
    up if it is also three times as long as a step without it."""
    ops = timeline.trace.ops
    device, length_ns = int(ops.device[op]), int(ops.length_ns[op])
    same = (ops.name == ops.name[op]) & (ops.shape == ops.shape[op]) & (ops.device == device)
    all_ns = ops.length_ns[same]
    typical_ns = upper_median(all_ns)
    outside = is_outside(ops.length_ns[op], typical_ns, upper_median(np.abs(all_ns - typical_ns)))
    start_ns, end_ns = _alone(ops, op, typical_ns)
    busy, count = timeline.busy[device], int(np.count_nonzero(timeline.steps.gpu_ops))
    rest_ns = int(busy.end_ns[-1] - busy.start_ns[0]) - (end_ns - start_ns)
    step_ns = scale.step_ns if count >= FEW else rest_ns // max(count, 1)
    is_alone = end_ns - start_ns >= _ALONE * (length_ns - typical_ns)
    if outside and is_alone and len(all_ns) > FEW and length_ns >= UNSEEN_STEPS * step_ns:
        shown = f"{duration(typical_ns)} in {len(all_ns) - 1} others of its name and shape"
        yield _long_op(timeline, op, (start_ns, end_ns), shown)


def _long_op(timeline: Timeline, op: int, span: tuple[int, int], usual: str) -> HeldUp:
    ops = timeline.trace.ops
    name = shorten(short_name(timeline.trace.names[ops.name[op]]), NAME_CELLS)
    evidence = f"{name} ran for {duration(int(ops.length_ns[op]))}; {usual} (median)"
    return HeldUp(int(ops.device[op]), *span, "long_op", evidence, -1, op)


def _alone(ops: GpuOps, op: int, typical_ns: int) -> tuple[int, int]:
    """When an op ran for longer than is usual, from the end of those that began before until the
    first that begins then."""
    start_ns, end_ns = int(ops.start_ns[op]) + typical_ns, int(ops.end_ns[op])
    beside = (ops.device == ops.device[op]) & (ops.start_ns < end_ns) & (ops.end_ns > start_ns)
    beside[op] = False
    before = beside & (ops.start_ns <= start_ns)
    start_ns = int(ops.end_ns[before].max(initial=start_ns))
    return start_ns, int(ops.start_ns[beside & ~before].min(initial=end_ns))
