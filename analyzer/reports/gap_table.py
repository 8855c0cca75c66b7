"""The chosen gaps as a table of any length: ordered, searched, and described one row at a time."""

import re
from array import array
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.gap_list import (
    GapChoice,
    chosen_gaps,
    gap_classes,
    longest_first,
)
from decodescope.analyzer.reports.gap_report import gap_report
from decodescope.analyzer.schema.report import GAP_CLASSES, GapReport
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int64s

Field = Literal["class", "at", "length", "after", "before", "call", "range", "step", "device"]
_KEPT_REPORTS = 2_048


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
        found = self._reports.get(row)
        if found is None:
            if len(self._reports) >= _KEPT_REPORTS:
                self._reports.clear()
            found = self._reports[row] = gap_report(self._timeline, self._ranges, row)
        return found

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
        timeline, names = self._timeline, self._timeline.trace.names
        ops, gaps = timeline.trace.ops, timeline.gaps
        found = _matches(self._classes, lambda index: GAP_CLASSES[index], pattern)
        found |= _matches(ops.name[gaps.prev], lambda index: names[index], pattern)
        found |= _matches(ops.name[gaps.next], lambda index: names[index], pattern)
        found |= _matches(self._calls(), lambda index: names[index], pattern)
        node = self._ranges.op_node[gaps.next]
        found |= _matches(node, lambda index: self._ranges.paths[index], pattern)
        return set(np.flatnonzero(found[self.rows]).tolist())

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


def _matches(
    index: NDArray[np.integer], text_of: Callable[[int], str], pattern: re.Pattern[str]
) -> Bools:
    """For each index, whether its text matches; negative ones have none."""
    used, where = np.unique(index, return_inverse=True)
    found = [one >= 0 and pattern.search(text_of(one)) is not None for one in used.tolist()]
    return np.array(found, dtype=np.bool_)[where]
