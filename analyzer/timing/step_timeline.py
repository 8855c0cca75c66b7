"""One step as it is drawn: its ops and gaps over time, and both summed per column of pixels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.intervals import covered_until, union
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int32s, Int64s, Intervals

NO_GAP = -1


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """The ops and gaps of one device during one step, clipped to it, in ns from its first op.

    The step lasts `length_ns`, until the next step's first op: a gap after its last op is included.
    `op_kinds` holds KERNEL, MEMCPY, MEMSET or CPU_OPERATOR, `op_names` indexes `names`,
    `gap_classes` indexes `GAP_CLASSES`. Ops are sorted by start, gaps too.
    """

    index: int
    name: str
    device: int
    length_ns: int
    op_starts_ns: Int64s
    op_ends_ns: Int64s
    op_kinds: Int8s
    op_names: Int32s
    op_streams: Int64s
    gap_starts_ns: Int64s
    gap_ends_ns: Int64s
    gap_classes: Int8s
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
    ops = trace.ops.take(_inside(trace.ops, trace.ops.device == device, start, length))
    gaps = timeline.gaps
    between = _inside(gaps, gaps.device == device, start, length)
    return StepTimeline(
        index=index,
        name=timeline.step_name(index),
        device=device,
        length_ns=length,
        op_starts_ns=_clip(ops.start_ns, start, length),
        op_ends_ns=_clip(ops.end_ns, start, length),
        op_kinds=ops.kind,
        op_names=ops.name,
        op_streams=ops.stream,
        gap_starts_ns=_clip(gaps.start_ns[between], start, length),
        gap_ends_ns=_clip(gaps.end_ns[between], start, length),
        gap_classes=gaps.kind[between],
        names=trace.names,
    )


def busy_fraction(timeline: StepTimeline, columns: int) -> NDArray[np.float64]:
    """Share of each column's time in which at least one op ran; float64 [columns], each in 0..1."""
    edges = column_edges(timeline, columns)
    covered = covered_until(union(timeline.op_starts_ns, timeline.op_ends_ns), edges)
    widths = np.diff(edges)
    return np.divide(np.diff(covered), widths, out=np.zeros(columns), where=widths > 0)


def largest_gap(timeline: StepTimeline, columns: int) -> tuple[Int64s, Int8s]:
    """For each column the whole length (ns) of the longest gap that touches it, and its class.

    Lengths are int64 [columns], 0 without a gap; classes index `GAP_CLASSES`, `NO_GAP` without one.
    The first of equally long gaps counts.
    """
    lengths = np.zeros(columns, dtype=np.int64)
    classes = np.full(columns, NO_GAP, dtype=np.int8)
    starts, ends = timeline.gap_starts_ns, timeline.gap_ends_ns
    if not columns or not len(starts):
        return lengths, classes
    edges = column_edges(timeline, columns)
    first = np.searchsorted(ends, edges[:-1], side="right")
    after = np.searchsorted(starts, edges[1:], side="left")
    touched = np.flatnonzero(after > first)
    count = len(starts)
    rank, winner = np.empty((2, count), dtype=np.int64)
    rank[np.lexsort((-np.arange(count), ends - starts))] = np.arange(count)
    bounds = np.stack((first[touched], after[touched]), axis=1).ravel()
    best = np.maximum.reduceat(np.append(rank, -1), bounds)[::2]
    winner[rank] = np.arange(count)
    lengths[touched] = (ends - starts)[winner[best]]
    classes[touched] = timeline.gap_classes[winner[best]]
    return lengths, classes


def column_edges(timeline: StepTimeline, columns: int) -> Int64s:
    """The edges of the columns: int64 [columns + 1] from 0 to `length_ns`, in whole ns."""
    whole = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns // max(columns, 1))
    rest = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns % max(columns, 1))
    return np.asarray(whole + rest // max(columns, 1), dtype=np.int64)


def gap_class_name(index: int) -> str:
    """The gap class of a value of `gap_classes`, "" for `NO_GAP`."""
    return GAP_CLASSES[index] if index >= 0 else ""


def _inside(intervals: Intervals, mine: Bools, start: int, length: int) -> Int64s:
    inside = mine & (intervals.start_ns < start + length) & (intervals.end_ns > start)
    return np.flatnonzero(inside)


def _clip(times_ns: Int64s, start: int, length: int) -> Int64s:
    return np.asarray(np.clip(times_ns - start, 0, length), dtype=np.int64)
