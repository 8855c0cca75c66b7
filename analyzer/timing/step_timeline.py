"""One step as it is drawn: what ran when, which gaps lay between, and both summed per column."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.steps import Steps, step_time_ns
from decodescope.analyzer.timing.timeline import covered_until, union
from decodescope.analyzer.trace import Int8s, Int32s, Int64s, Trace

NO_GAP = -1


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """The ops and gaps of one device during one step, clipped to it, in ns from its first op.

    The step lasts `length_ns`: to the next step's first op, so a gap after the last op is in it.
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


def step_timeline(trace: Trace, gaps: Gaps, steps: Steps, index: int = -1) -> StepTimeline | None:
    """The timeline of step `index` (negative counts from the end, as in a list), or None."""
    if not -len(steps) <= index < len(steps):
        return None
    index %= len(steps)
    if not steps.gpu_ops[index]:
        return None
    start = int(steps.span_start_ns[index])
    span = int(steps.span_end_ns[index]) - start
    length = max(step_time_ns(trace, steps, index), span)
    device = int(steps.device[index])
    ops = _overlapping(
        trace.ops.start_ns, trace.ops.end_ns, trace.ops.device == device, start, length
    )
    between = _overlapping(gaps.start_ns, gaps.end_ns, gaps.device == device, start, length)
    return StepTimeline(
        index=index,
        name=trace.names[trace.ranges.name[steps.marker[index]]],
        device=device,
        length_ns=length,
        op_starts_ns=_clip(trace.ops.start_ns[ops], start, length),
        op_ends_ns=_clip(trace.ops.end_ns[ops], start, length),
        op_kinds=trace.ops.kind[ops],
        op_names=trace.ops.name[ops],
        op_streams=trace.ops.stream[ops],
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

    Lengths are int64 [columns], 0 where no gap lies; classes index `GAP_CLASSES`, `NO_GAP` there.
    Of equally long gaps the first counts.
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
    rank = (ends - starts) * 0
    rank[np.lexsort((-np.arange(count), ends - starts))] = np.arange(count)
    bounds = np.stack((first[touched], after[touched]), axis=1).ravel()
    best = np.maximum.reduceat(np.append(rank, -1), bounds)[::2]
    winner = np.empty(count, dtype=np.int64)
    winner[rank] = np.arange(count)
    lengths[touched] = (ends - starts)[winner[best]]
    classes[touched] = timeline.gap_classes[winner[best]]
    return lengths, classes


def column_edges(timeline: StepTimeline, columns: int) -> Int64s:
    """Where columns begin and end: int64 [columns + 1] from 0 to `length_ns`, in whole ns."""
    whole = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns // max(columns, 1))
    rest = np.arange(columns + 1, dtype=np.int64) * (timeline.length_ns % max(columns, 1))
    return np.asarray(whole + rest // max(columns, 1), dtype=np.int64)


def gap_class_name(index: int) -> str:
    """The class that a value of `gap_classes` stands for, "" for `NO_GAP`."""
    return GAP_CLASSES[index] if index >= 0 else ""


def _overlapping(
    start_ns: Int64s, end_ns: Int64s, mine: NDArray[np.bool_], start: int, length: int
) -> Int64s:
    inside = mine & (start_ns < start + length) & (end_ns > start)
    return np.flatnonzero(inside).astype(np.int64, copy=False)


def _clip(times_ns: Int64s, start: int, length: int) -> Int64s:
    return np.asarray(np.clip(times_ns - start, 0, length), dtype=np.int64)
