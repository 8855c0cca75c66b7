"""The gaps that filters choose: their totals, and a table of them that sorts and searches."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.device_report import IdleTotals, gap_report, idle_totals
from decodescope.analyzer.schema.report import GAP_CLASSES, GapReport
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int64s

Field = Literal["class", "at", "length", "after", "before", "call", "range", "step", "device"]
_KEPT_REPORTS = 2_048


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
    order = np.lexsort((-parts.length_ns, parts.gap))
    gap, first = np.unique(parts.gap[order], return_index=True)
    classes = np.zeros(len(timeline.gaps), dtype=np.int8)
    classes[gap] = parts.kind[order[first]]
    return classes


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


class GapTable:
    """The gaps of `choice`, the longest first; `rows` are their rows in `timeline.gaps`.

    A place is an index of `rows`. What the host did is computed for one gap at a time (`report`).
    """

    def __init__(self, timeline: Timeline, ranges: Ranges, choice: GapChoice) -> None:
        self._timeline, self._ranges = timeline, ranges
        self._classes = gap_classes(timeline)
        self._reports: dict[int, GapReport] = {}
        self.rows: Int64s = longest_first(timeline, chosen_gaps(timeline, ranges, choice))
        self._places = np.full(len(timeline.gaps), -1, dtype=np.int64)
        self._places[self.rows] = np.arange(len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> int | None:
        """The place of a row of `timeline.gaps`, None if it is not listed."""
        place = int(self._places[row]) if 0 <= row < len(self._places) else -1
        return place if place >= 0 else None

    def report(self, place: int) -> GapReport:
        """Everything about the gap at `place`."""
        row = int(self.rows[place])
        report = self._reports.get(row)
        if report is None:
            if len(self._reports) >= _KEPT_REPORTS:
                self._reports.clear()
            report = self._reports[row] = gap_report(self._timeline, self._ranges, row)
        return report

    def order(self, field: Field, down: bool) -> Sequence[int]:
        """The places in the order of a field, names alphabetically; equal ones keep their order,
        unknown values are last."""
        values = self._values(field)
        unknown = values < 0
        keys = -values if down else values
        order = np.lexsort((np.where(unknown, 0, keys), unknown))
        return array("q", order.tobytes())

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        """The places of gaps whose class, ops, launch call or range match."""
        names, ops, gaps = self._timeline.trace.names, self._timeline.trace.ops, self._timeline.gaps
        texts: tuple[tuple[NDArray[np.integer], Sequence[str]], ...] = (
            (self._classes, GAP_CLASSES),
            (ops.name[gaps.prev], names),
            (ops.name[gaps.next], names),
            (self._calls(), names),
            (self._ranges.op_node[gaps.next], self._ranges.paths),
        )
        matches = np.any([_matches(index, of, pattern) for index, of in texts], axis=0)
        return set(np.flatnonzero(matches[self.rows]).tolist())

    def _values(self, field: Field) -> NDArray[np.int64]:
        """Numbers in the order of the field's values, negative for unknown ones."""
        timeline, rows = self._timeline, self.rows
        ops, gaps = timeline.trace.ops, timeline.gaps
        match field:
            case "class":
                values: NDArray[np.integer] = _ranks(GAP_CLASSES)[self._classes[rows]]
            case "at":
                values = gaps.start_ns[rows]
            case "length":
                values = gaps.length_ns[rows]
            case "after":
                values = ops.name[gaps.prev[rows]]
            case "before":
                values = ops.name[gaps.next[rows]]
            case "call":
                values = self._calls()[rows]
            case "step":
                values = timeline.steps.op_step[gaps.next[rows]]
            case "device":
                values = gaps.device[rows]
            case "range":
                node = self._ranges.op_node[gaps.next[rows]]
                values = np.append(_ranks(self._ranges.paths), -1)[node]
        return values.astype(np.int64)

    def _calls(self) -> Int64s:
        """The name of each gap's launch call, -1 for none."""
        calls = self._timeline.trace.calls
        return np.append(calls.name.astype(np.int64), -1)[self._timeline.gaps.call]


def _ranks(texts: tuple[str, ...]) -> Int64s:
    """The place of each text in alphabetical order."""
    ranks = np.empty(len(texts), dtype=np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks


def _matches(index: NDArray[np.integer], texts: Sequence[str], pattern: re.Pattern[str]) -> Bools:
    """For each index of `texts`, whether its text matches; negative ones have none."""
    used, where = np.unique(index, return_inverse=True)
    matches = [
        number >= 0 and pattern.search(texts[number]) is not None for number in used.tolist()
    ]
    return np.array(matches, dtype=np.bool_)[where]
