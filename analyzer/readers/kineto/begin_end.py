"""Events in two parts: "B" begins one, "E" on the same thread ends it.

Kineto writes whole events ("X"); other writers of the Chrome format, such as tracers of our users'
own, write these. The format: "Trace Event Format", Duration Events (Google, 2016). As in Perfetto,
an "E" with a name ends the last open "B" of that name, one without a name the last open one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decodescope.analyzer.readers.kineto.event import Event
from decodescope.analyzer.readers.trace_columns import LIMIT_NS, NOT_GIVEN, Growing
from decodescope.analyzer.trace import Bools, Columns, Int64s, row_numbers


@dataclass(frozen=True, slots=True, eq=False)
class _Marks(Columns):
    """One row for each "B" or "E", in the order of the file; `name` is `NOT_GIVEN` without one."""

    at_ns: Int64s
    pid: Int64s
    tid: Int64s
    name: Int64s
    ends: Bools


class BeginEnd:
    """Takes the marks of each batch and the columns of what they begin; `finish` ends these.

    Afterwards `unclosed` counts the events that never ended, `unopened` the ends without a begin.
    """

    def __init__(self) -> None:
        self.unclosed = 0
        self.unopened = 0
        self._marks: list[_Marks] = []
        self._begun: list[tuple[Growing[Any], int, Int64s]] = []
        self._numbers: dict[str, int] = {}
        self._count = 0

    def add(self, marks: Sequence[Event], at_ns: Int64s, pid: Int64s, tid: Int64s) -> int:
        """Append marks; returns the number of the first one."""
        first, number = self._count, self._numbers
        self._marks.append(
            _Marks(
                at_ns=at_ns,
                pid=pid,
                tid=tid,
                name=_integers(
                    [
                        number.setdefault(mark.name, len(number)) if mark.name else NOT_GIVEN
                        for mark in marks
                    ]
                ),
                ends=np.array([mark.ph == "E" for mark in marks], dtype=np.bool_),
            )
        )
        self._count += len(marks)
        return first

    def began(self, group: Growing[Any], begins: Sequence[int]) -> None:
        """The last rows of `group` are the events that the marks `begins` begin."""
        self._begun.append((group, len(group) - len(begins), _integers(begins)))

    def finish(self) -> None:
        """End what was begun; rows without an end are dropped."""
        if not self._marks:
            return
        marks = _Marks.concatenate(self._marks)
        closing = _closing(marks)
        closing[marks.at_ns[closing] - marks.at_ns > LIMIT_NS] = -1
        closed = closing >= 0
        self.unclosed = int(np.count_nonzero(~closed & ~marks.ends))
        self.unopened = int(np.count_nonzero(marks.ends) - np.count_nonzero(closed))
        groups = {group for group, _, _ in self._begun}
        ends = {group: group.rows().end_ns.copy() for group in groups}
        kept = {group: np.ones(len(group), dtype=np.bool_) for group in groups}
        for group, first, begins in self._begun:
            end = closing[begins]
            ends[group][first : first + len(begins)] = marks.at_ns[end]
            kept[group][first : first + len(begins)] = end >= 0
        for group in groups:
            group.change(end_ns=ends[group]).keep(kept[group])


def _integers(values: Sequence[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


def _closing(marks: _Marks) -> Int64s:
    """For each "B" the mark that ends it, else -1."""
    closing = [-1] * len(marks)
    order = np.lexsort((marks.at_ns, marks.tid, marks.pid))
    thread_of = row_numbers(marks.pid, marks.tid)
    columns = (order, thread_of[order], marks.name[order], marks.ends[order])
    thread = -1
    opened: list[tuple[int, int]] = []
    of_name: dict[int, list[int]] = {}
    for mark, where, name, ends in zip(*(column.tolist() for column in columns), strict=True):
        if where != thread:
            thread, opened, of_name = where, [], defaultdict(list)
        if not ends:
            opened.append((mark, name))
            of_name[name].append(mark)
        elif name != NOT_GIVEN:
            if of_name[name]:
                closing[of_name[name].pop()] = mark
        else:
            while opened and closing[opened[-1][0]] >= 0:
                opened.pop()
            if opened:
                begin, its_name = opened.pop()
                of_name[its_name].pop()
                closing[begin] = mark
    return _integers(closing)
