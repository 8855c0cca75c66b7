"""The gaps that filters choose, and their totals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.device_report import IdleTotals, idle_totals
from decodescope.analyzer.reports.main_steps import times_on
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Intervals, rows_by


@dataclass(frozen=True, slots=True)
class GapChoice:
    """Which gaps: `within` a range path (those that one of its ops ended), during the `step` with
    this index, with a part of `gap_class`, and with a length in one bucket of the
    histogram, (lower, upper] ns: that of the part if there is a class, else of the gap. None is
    any.
    """

    within: str | None = None
    step: int | None = None
    gap_class: str | None = None
    bucket_ns: tuple[int, int] | None = None


def chosen_gaps(timeline: Timeline, ranges: Ranges, choice: GapChoice) -> Int64s:
    """The rows of `timeline.gaps` that `choice` is about, in order."""
    gaps, parts = timeline.gaps, timeline.parts
    chosen = np.ones(len(gaps), dtype=np.bool_)
    if choice.within is not None:
        chosen &= ranges.ops_within(choice.within)[gaps.next]
    if choice.step is not None:
        chosen &= _inside_step(timeline, choice.step)
    if choice.gap_class is not None:
        of_class = parts.take(parts.kind == GAP_CLASSES.index(choice.gap_class))
        in_bucket = _in_bucket(of_class.length_ns, choice.bucket_ns)
        chosen &= np.isin(np.arange(len(gaps)), of_class.gap[in_bucket])
    else:
        chosen &= _in_bucket(gaps.length_ns, choice.bucket_ns)
    return np.flatnonzero(chosen)


class IdleTable(NamedTuple):
    """The totals of some gaps, and the time that their shares are of."""

    totals: IdleTotals
    of_ns: int


def idle_table(timeline: Timeline, ranges: Ranges, choice: GapChoice) -> IdleTable:
    """The totals of the chosen gaps, by class. Shares are of the windows of all devices, in a step
    of its time on each of its devices."""
    totals = idle_totals(timeline, chosen_gaps(timeline, ranges, choice))
    if choice.step is None:
        of_ns = sum(int(busy.end_ns[-1] - busy.start_ns[0]) for busy in timeline.busy.values())
    else:
        of_ns = sum(int(time.length_ns.sum()) for _, time in _times_of(timeline, choice.step))
    return IdleTable(totals, of_ns)


def longest_first(timeline: Timeline, chosen: Int64s) -> Int64s:
    """The rows `chosen` by length, ties in order of device and start, as in `largest_gaps`."""
    return chosen[np.argsort(-timeline.gaps.length_ns[chosen], kind="stable")]


def gap_classes(timeline: Timeline) -> Int8s:
    """The class of the longest part of each gap, an index in `GAP_CLASSES`; of equal parts, the
    first."""
    parts = timeline.parts
    order = np.lexsort((-parts.length_ns, parts.gap))
    gap, first = np.unique(parts.gap[order], return_index=True)
    classes = np.zeros(len(timeline.gaps), dtype=np.int8)
    classes[gap] = parts.kind[order[first]]
    return classes


def _inside_step(timeline: Timeline, step: int) -> Bools:
    """Whether each gap is in the time of a step, on a device that the step used."""
    gaps = timeline.gaps
    inside = np.zeros(len(gaps), dtype=np.bool_)
    for device, time in _times_of(timeline, step):
        for start_ns, end_ns in zip(time.start_ns.tolist(), time.end_ns.tolist(), strict=True):
            during = (gaps.start_ns >= start_ns) & (gaps.end_ns <= end_ns)
            inside |= during & (gaps.device == device)
    return inside


def _times_of(timeline: Timeline, step: int) -> Iterator[tuple[int, Intervals]]:
    """The devices that a step used, each with the time from its first op there to that of the next
    step."""
    if 0 <= step < len(timeline.steps):
        for device, op_rows in rows_by(timeline.trace.ops.device).items():
            if device in timeline.steps.devices[step]:
                yield device, times_on(timeline, op_rows, np.array([step]))


def _in_bucket(length_ns: Int64s, bucket_ns: tuple[int, int] | None) -> Bools:
    if bucket_ns is None:
        return np.ones(len(length_ns), dtype=np.bool_)
    lower, upper = bucket_ns
    return np.asarray((length_ns > lower) & (length_ns <= upper))
