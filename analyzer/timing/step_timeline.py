"""One step as it is drawn: its ops and gaps over time, and both summed per column of pixels."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.timing.intervals import covered_until, overlapped, union
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, GpuOps, Int8s, Int64s, Intervals

NO_GAP = -1
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


def busy_fraction(timeline: StepTimeline, columns: int) -> NDArray[np.float64]:
    """Share of each column's time in which at least one op ran; float64 [columns], each in 0..1."""
    return _fraction(timeline, columns, union(timeline.ops.start_ns, timeline.ops.end_ns))


def overlap_fraction(timeline: StepTimeline, columns: int) -> NDArray[np.float64]:
    """Share of each column's time in which two or more ops ran; float64 [columns], each in 0..1."""
    return _fraction(timeline, columns, overlapped(timeline.ops.start_ns, timeline.ops.end_ns))


def _fraction(timeline: StepTimeline, columns: int, intervals: Intervals) -> NDArray[np.float64]:
    edges = column_edges(timeline, columns)
    widths = np.diff(edges)
    covered = np.diff(covered_until(intervals, edges))
    return np.divide(covered, widths, out=np.zeros(columns), where=widths > 0)


def largest_gap(timeline: StepTimeline, columns: int) -> tuple[Int64s, Int8s]:
    """For each column the whole length (ns) of the longest part of a gap in it, and its class.

    Lengths are int64 [columns], 0 without a gap; classes index `GAP_CLASSES`, `NO_GAP` without one.
    The first of equally long parts counts.
    """
    lengths = np.zeros(columns, dtype=np.int64)
    classes = np.full(columns, NO_GAP, dtype=np.int8)
    gaps = timeline.gaps
    if not columns or not len(gaps):
        return lengths, classes
    edges = column_edges(timeline, columns)
    first = np.searchsorted(gaps.end_ns, edges[:-1], side="right")
    after = np.searchsorted(gaps.start_ns, edges[1:], side="left")
    touched = np.flatnonzero(after > first)
    count = len(gaps)
    rank, winner = np.empty((2, count), dtype=np.int64)
    rank[np.lexsort((-np.arange(count), gaps.length_ns))] = np.arange(count)
    bounds = np.stack((first[touched], after[touched]), axis=1).ravel()
    best = np.maximum.reduceat(np.append(rank, -1), bounds)[::2]
    winner[rank] = np.arange(count)
    lengths[touched] = gaps.length_ns[winner[best]]
    classes[touched] = gaps.kind[winner[best]]
    return lengths, classes


def column_edges(timeline: StepTimeline, columns: int) -> Int64s:
    """The edges of the columns: int64 [columns + 1] from 0 to `length_ns`, in whole ns."""
    whole = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns // max(columns, 1))
    rest = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns % max(columns, 1))
    return np.asarray(whole + rest // max(columns, 1), dtype=np.int64)


def gap_class_name(index: int) -> str:
    """The gap class of a value of `Gaps.kind`, "" for `NO_GAP`."""
    return GAP_CLASSES[index] if index >= 0 else ""


def _clipped(rows: _Rows, mine: Bools, start: int, length: int) -> _Rows:
    inside = mine & (rows.start_ns < start + length) & (rows.end_ns > start)
    seen = rows.take(inside)
    return replace(
        seen,
        start_ns=np.clip(seen.start_ns - start, 0, length),
        end_ns=np.clip(seen.end_ns - start, 0, length),
    )
