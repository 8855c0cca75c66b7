"""The gaps that filters choose, their totals, and their groups."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.device_report import IdleTotals, idle_totals, rows_within
from decodescope.analyzer.reports.main_steps import times_on
from decodescope.analyzer.schema.report import GAP_CLASSES, GapGroup
from decodescope.analyzer.timing.gaps import HOST_WAIT, HOST_WAIT_LABELS
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Intervals, rows_by

REPORTED_GROUPS = 100


@dataclass(frozen=True, slots=True)
class GapChoice:
    """Which gaps: `within` a range path (one of its ops ended them), during the `step` with this
    index, with a part of `gap_class`, and with a length in (lower, upper] ns: of that part, if
    there is a class. None is any."""

    within: str | None = None
    step: int | None = None
    gap_class: str | None = None
    bucket_ns: tuple[int, int] | None = None


def chosen_gaps(timeline: Timeline, ranges: Ranges, choice: GapChoice) -> Int64s:
    """The rows of `timeline.gaps` that `choice` is about, in order."""
    gaps, parts = timeline.gaps, timeline.parts
    chosen = ranges.ops_within(choice.within)[gaps.next]
    if choice.step is not None:
        chosen &= _inside_step(timeline, choice.step)
    if choice.gap_class is not None:
        of_class = parts.take(parts.kind == GAP_CLASSES.index(choice.gap_class))
        in_bucket = _in_bucket(of_class.length_ns, choice.bucket_ns)
        chosen &= np.isin(np.arange(len(gaps)), of_class.gap[in_bucket])
    else:
        chosen &= _in_bucket(gaps.length_ns, choice.bucket_ns)
    return np.flatnonzero(chosen)


def idle_table(timeline: Timeline, ranges: Ranges, choice: GapChoice) -> tuple[IdleTotals, int]:
    """The totals of the chosen gaps, by class, and the time that their shares are of, in ns: the
    windows of all devices, or the time of the step on each of its devices."""
    totals = idle_totals(timeline, chosen_gaps(timeline, ranges, choice))
    if choice.step is None:
        of_ns = sum(int(busy.end_ns[-1] - busy.start_ns[0]) for busy in timeline.busy.values())
    else:
        of_ns = sum(int(time.length_ns.sum()) for _, time in _times_of(timeline, choice.step))
    return totals, of_ns


def longest_first(timeline: Timeline, chosen: Int64s) -> Int64s:
    """The rows `chosen` by length, ties in order of device and start, as in `largest_gaps`."""
    return chosen[np.argsort(-timeline.gaps.length_ns[chosen], kind="stable")]


def gap_classes(timeline: Timeline, chosen: Int64s) -> Int8s:
    """The class of the longest part of each gap in the rows `chosen`, which are in order, as an
    index in `GAP_CLASSES`; of equal parts, the first."""
    parts = timeline.parts.take(rows_within(timeline.parts.gap, chosen))
    if not len(parts):
        return parts.kind
    starts = np.flatnonzero(np.diff(parts.gap, prepend=-1))
    longest_ns = np.maximum.reduceat(parts.length_ns, starts)
    sizes = np.diff(starts, append=len(parts))
    longest = np.flatnonzero(parts.length_ns == np.repeat(longest_ns, sizes))
    return parts.kind[longest[np.diff(parts.gap[longest], prepend=-1) > 0]]


def grouped_gaps(timeline: Timeline, chosen: Int64s) -> tuple[tuple[GapGroup, ...], Int64s]:
    """The groups of the gaps in the rows `chosen`, which are in order, the one with the most time
    first; and these rows by group, those of one group as in `longest_first`."""
    trace, gaps, waits = timeline.trace, timeline.gaps, timeline.host_waits
    ends = (trace.ops.name[op[chosen]].astype(np.int64) for op in (gaps.prev, gaps.next))
    shape = (len(GAP_CLASSES), *2 * (max(len(trace.names), 1),))
    codes = np.ravel_multi_index((gap_classes(timeline, chosen), *ends), shape)
    codes, group = np.unique(codes, return_inverse=True)
    total_ns, max_ns = np.zeros((2, len(codes)), dtype=np.int64)
    np.add.at(total_ns, group, gaps.length_ns[chosen])
    np.maximum.at(max_ns, group, gaps.length_ns[chosen])
    # What the host did: of the waits of each group, the label with the most time.
    group_of_gap = np.full(len(gaps), len(codes))
    group_of_gap[chosen] = group
    waited_ns = np.zeros((len(codes) + 1, len(HOST_WAIT_LABELS)), dtype=np.int64)
    np.add.at(waited_ns, (group_of_gap[waits.gap], waits.kind), waits.length_ns)
    columns = (
        *np.unravel_index(codes, shape),
        waited_ns[:-1].argmax(axis=1),
        np.bincount(group, minlength=len(codes)),
        total_ns,
        max_ns,
    )
    order = np.argsort(-total_ns, kind="stable")
    groups = tuple(
        GapGroup(
            gap_class=GAP_CLASSES[kind],
            label=HOST_WAIT_LABELS[label] if kind == HOST_WAIT else None,
            prev=trace.names[prev],
            next=trace.names[after],
            count=count,
            total_ns=total,
            max_ns=longest,
        )
        for kind, prev, after, label, count, total, longest in zip(
            *(column[order].tolist() for column in columns), strict=True
        )
    )
    rank = np.argsort(order)
    return groups, chosen[np.lexsort((-gaps.length_ns[chosen], rank[group]))]


def gaps_of_group(
    timeline: Timeline, chosen: Int64s, gap_class: str, prev: str, after: str
) -> Int64s:
    """The gaps in the rows `chosen` that have this class, between ops of these names."""
    names, ops, gaps = timeline.trace.names, timeline.trace.ops, timeline.gaps
    for op, name in ((gaps.prev, prev), (gaps.next, after)):
        number = names.index(name) if name in names else -1
        chosen = chosen[ops.name[op[chosen]] == number]
    return np.asarray(chosen[gap_classes(timeline, chosen) == GAP_CLASSES.index(gap_class)])


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
    """The devices that a step used, each with the step's time there."""
    if 0 <= step < len(timeline.steps):
        for device, op_rows in rows_by(timeline.trace.ops.device).items():
            if device in timeline.steps.devices[step]:
                yield device, times_on(timeline, op_rows, np.array([step]))


def _in_bucket(length_ns: Int64s, bucket_ns: tuple[int, int] | None) -> Bools:
    if bucket_ns is None:
        return np.ones(len(length_ns), dtype=np.bool_)
    lower, upper = bucket_ns
    return np.asarray((length_ns > lower) & (length_ns <= upper))
