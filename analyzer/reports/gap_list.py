"""The gaps that filters choose, their totals, and their groups."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.device_report import IdleTotals, idle_totals
from decodescope.analyzer.schema.report import GAP_CLASSES, GapGroup
from decodescope.analyzer.timing.gaps import HOST_WAIT
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Columns, Int8s, Int64s

REPORTED_GROUPS = 100


@dataclass(frozen=True, slots=True)
class GapChoice:
    """Which gaps: `within` a range path (those that one of its ops ended), inside the GPU span of
    the `step` with this index, with a part of `gap_class`, and with a length in one bucket of the
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
    of its GPU span on each of its devices."""
    totals = idle_totals(timeline, chosen_gaps(timeline, ranges, choice))
    steps = timeline.steps
    if choice.step is None:
        of_ns = sum(int(busy.end_ns[-1] - busy.start_ns[0]) for busy in timeline.busy.values())
    elif 0 <= choice.step < len(steps):
        of_ns = int(steps.span.length_ns[choice.step]) * len(steps.devices[choice.step])
    else:
        of_ns = 0
    return IdleTable(totals, of_ns)


def longest_first(timeline: Timeline, chosen: Int64s) -> Int64s:
    """The rows `chosen` by length, ties in order of device and start, as in `largest_gaps`."""
    return chosen[np.argsort(-timeline.gaps.length_ns[chosen], kind="stable")]


def gap_classes(timeline: Timeline) -> Int8s:
    """The class of the longest part of each gap, an index in `GAP_CLASSES`; of equal parts, the
    first."""
    parts = timeline.parts
    classes = np.zeros(len(timeline.gaps), dtype=np.int8)
    if not len(parts):
        return classes
    starts = np.flatnonzero(np.diff(parts.gap, prepend=-1))
    longest_ns = np.maximum.reduceat(parts.length_ns, starts)
    sizes = np.diff(starts, append=len(parts))
    longest = np.flatnonzero(parts.length_ns == np.repeat(longest_ns, sizes))
    first = longest[np.diff(parts.gap[longest], prepend=-1) > 0]
    classes[parts.gap[first]] = parts.kind[first]
    return classes


@dataclass(frozen=True, slots=True, eq=False)
class GapGroups(Columns):
    """One row for each (class, name of the op before, name of the op after) of some gaps, the
    largest total first; names index `Trace.names`, `label` is one of `HOST_WAIT_LABELS` or -1.

    The gaps of a group are `count` places of the `order` of `grouped_gaps`, from `first` on.
    """

    gap_class: Int64s
    prev: Int64s
    next: Int64s
    label: Int64s
    count: Int64s
    total_ns: Int64s
    max_ns: Int64s
    first: Int64s

    def report(self, timeline: Timeline, row: int) -> GapGroup:
        """The group in this row, with its names."""
        names, label = timeline.trace.names, int(self.label[row])
        return GapGroup(
            gap_class=GAP_CLASSES[self.gap_class[row]],
            label=HOST_WAIT_LABELS[label] if label >= 0 else None,
            prev=names[self.prev[row]],
            next=names[self.next[row]],
            count=int(self.count[row]),
            total_ns=int(self.total_ns[row]),
            max_ns=int(self.max_ns[row]),
        )


def grouped_gaps(timeline: Timeline, chosen: Int64s) -> tuple[GapGroups, Int64s]:
    """The groups of the gaps in the rows `chosen`, and the order of these rows by group; those of a
    group are in order of length, the longest first, ties as in `longest_first`."""
    ops, gaps, waits = timeline.trace.ops, timeline.gaps, timeline.host_waits
    names, classes = len(timeline.trace.names), gap_classes(timeline)[chosen].astype(np.int64)
    prev, after = (ops.name[op[chosen]].astype(np.int64) for op in (gaps.prev, gaps.next))
    codes, group = np.unique((classes * names + prev) * names + after, return_inverse=True)
    length_ns = gaps.length_ns[chosen]
    total_ns, max_ns = np.zeros((2, len(codes)), dtype=np.int64)
    np.add.at(total_ns, group, length_ns)
    np.maximum.at(max_ns, group, length_ns)
    ranked = np.argsort(-total_ns, kind="stable")
    rank = np.empty_like(ranked)
    rank[ranked] = np.arange(len(ranked))
    order = chosen[np.lexsort((-length_ns, rank[group]))]
    count = np.bincount(group, minlength=len(codes))[ranked]
    # What the host did: of the waits of each group, the label with the most time.
    group_of_gap = np.full(len(gaps), len(codes))
    group_of_gap[chosen] = rank[group]
    waited_ns = np.zeros((len(codes) + 1, len(HOST_WAIT_LABELS)), dtype=np.int64)
    np.add.at(waited_ns, (group_of_gap[waits.gap], waits.kind), waits.length_ns)
    ends, next_name = np.divmod(codes[ranked], max(names, 1))
    gap_class, prev_name = np.divmod(ends, max(names, 1))
    label = np.where(gap_class == HOST_WAIT, waited_ns[:-1].argmax(axis=1), -1)
    first = np.cumsum(count) - count
    columns = (gap_class, prev_name, next_name, label, count, total_ns[ranked], max_ns[ranked])
    return GapGroups(*columns, first), order


def gap_group_reports(timeline: Timeline) -> tuple[tuple[GapGroup, ...], int]:
    """The `REPORTED_GROUPS` groups with the most time, of how many."""
    groups, _ = grouped_gaps(timeline, np.arange(len(timeline.gaps)))
    shown = range(min(len(groups), REPORTED_GROUPS))
    return tuple(groups.report(timeline, row) for row in shown), len(groups)


def _inside_step(timeline: Timeline, step: int) -> Bools:
    """Whether each gap is inside the GPU span of a step, on a device that the step used."""
    gaps, steps = timeline.gaps, timeline.steps
    if not 0 <= step < len(steps):
        return np.zeros(len(gaps), dtype=np.bool_)
    inside = (gaps.start_ns >= steps.span.start_ns[step]) & (gaps.end_ns <= steps.span.end_ns[step])
    return np.asarray(inside & np.isin(gaps.device, steps.devices[step]))


def _in_bucket(length_ns: Int64s, bucket_ns: tuple[int, int] | None) -> Bools:
    if bucket_ns is None:
        return np.ones(len(length_ns), dtype=np.bool_)
    lower, upper = bucket_ns
    return np.asarray((length_ns > lower) & (length_ns <= upper))
