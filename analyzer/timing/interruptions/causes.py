"""The causes of one gap: calls of the launching thread, pauses of the profiler, the first replay of
a graph, or nothing that the trace shows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.text.formatting import duration, shorten
from decodescope.analyzer.timing.gaps import DEPENDENCY, GRAPH_INTERNAL, UNLINKED
from decodescope.analyzer.timing.interruptions.interruption import Cause
from decodescope.analyzer.timing.interruptions.typical import MIN_INTERRUPTION_NS, OUTLIER_FACTOR
from decodescope.analyzer.timing.intervals import Union, covered_inside, union
from decodescope.analyzer.timing.launches import (
    find_captures,
    first_matches,
    graph_launch_calls,
    launching_thread,
)
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import HostEvents, Int8s, Int64s, Intervals

_CALLS: dict[Cause, re.Pattern[str]] = {
    "graph_upload": re.compile(r"Graph(?:Upload|Instantiate|ExecUpdate|ExecKernel)"),
    "module_loading": re.compile(
        r"Module(?:Load|Get|Unload)|Library(?:Load|Get|Enumerate)|Link(?:Create|Add|Complete)"
        r"|Func(?:Load|GetAttr|SetAttr|SetCache|GetModule)|KernelGet|KernelSet|RegisterFatBin"
        r"|GetFuncBySymbol|GetProcAddress"
    ),
    "allocation": re.compile(
        r"Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool|IpcOpen|IpcGet"
        r"|Mem(?:Alloc|Create|Map|Unmap|Release|SetAccess|Address)"
    ),
    "wait": re.compile(r"Synchronize|StreamWait|EventQuery|StreamQuery"),
    "launch": re.compile(r"Launch", re.IGNORECASE),
    "call": re.compile(""),
}
_PAUSES: dict[Cause, re.Pattern[str]] = {
    "module_loading": re.compile(r"Lazy Function Loading"),
    "profiler": re.compile(r"Buffer Flush|Activity Buffer|Instrumentation|Resource"),
}
# A step does these while a device idles; any other call shows the cause without a comparison.
_USUAL: tuple[Cause, ...] = ("launch", "call")
_KNOWN = tuple(cause for cause in _CALLS if cause not in _USUAL)
_HEAVY: tuple[Cause, ...] = ("graph_upload", "module_loading", "allocation")
# Names of calls and ops in the evidence are cut to this length.
NAME_CELLS = 100
_PIECE_SHARE = 0.05
_ALL = 0.9
_MANY = 100


class Piece(NamedTuple):
    """A part of a gap with one cause; `call` indexes `Trace.calls` (-1: none), `known` says that
    the trace shows the cause beyond doubt, `late` that the op had been launched, so that the host
    was not interrupted."""

    cause: Cause
    evidence: str
    call: int = -1
    known: bool = False
    late: bool = False
    start_ns: int = 0
    end_ns: int = 0

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, eq=False)
class GapCauses:
    timeline: Timeline

    @cached_property
    def _call_kinds(self) -> Int8s:
        """For each call, the index in `_CALLS` of the first kind that its name matches."""
        trace = self.timeline.trace
        return first_matches(trace, trace.calls, tuple(_CALLS.values()))

    @cached_property
    def _pause_kinds(self) -> Int8s:
        """For each pause of the profiler, the index in `_PAUSES`, -1 for others."""
        trace = self.timeline.trace
        return first_matches(trace, trace.overhead, tuple(_PAUSES.values()))

    @cached_property
    def _captured(self) -> Union:
        return find_captures(self.timeline.trace).during

    @cached_property
    def _first_replays(self) -> frozenset[int]:
        """The first launch of each graph: of its graph id, else of its first op and their number.

        The first launch of all is one even if what it launched is unknown."""
        trace, launches = self.timeline.trace, self.timeline.launches
        graphs = launches.take(launches.is_graph)
        name, graph = trace.ops.name[graphs.first_op], trace.ops.graph_id[graphs.first_op]
        has_id = graph > 0
        keys = np.column_stack((graph, np.where(has_id, 0, name), np.where(has_id, 0, graphs.ops)))
        _, first = np.unique(keys, axis=0, return_index=True)
        return frozenset(graphs.call[first].tolist())

    @cached_property
    def _first_launches(self) -> frozenset[int]:
        trace = self.timeline.trace
        _, first = np.unique(trace.ops.name, return_index=True)
        calls = trace.ops.launch[first]
        calls = calls[calls >= 0]
        return frozenset(calls[~graph_launch_calls(trace)[calls]].tolist())

    def of_gap(self, row: int, least_ns: int) -> list[Piece]:
        """The gap in row `row` of the timeline's gaps as adjacent pieces, each with its cause.

        A piece is at least `least_ns` and 5 % of the gap long, if there are several.
        """
        gaps, calls = self.timeline.gaps, self.timeline.trace.calls
        start_ns, end_ns = int(gaps.start_ns[row]), int(gaps.end_ns[row])
        least_ns = max(least_ns, MIN_INTERRUPTION_NS, int((end_ns - start_ns) * _PIECE_SHARE))
        call = int(gaps.call[row])
        is_internal = call >= 0 and self._kind_at(row, -1) == GRAPH_INTERNAL
        covers = self._covers(start_ns, end_ns, least_ns, None if is_internal else call)
        times_ns = {start_ns, end_ns}.union(*((cover.start_ns, cover.end_ns) for cover in covers))
        if call >= 0 and not is_internal:
            times_ns |= {int(calls.start_ns[call]), int(calls.end_ns[call])}
        pieces = []
        for begin_ns, until_ns in pairwise(
            sorted(time_ns for time_ns in times_ns if start_ns <= time_ns <= end_ns)
        ):
            over = [
                cover for cover in covers if cover.start_ns <= begin_ns and cover.end_ns >= until_ns
            ]
            # Of several, the one that began last counts, pauses of the profiler first.
            piece = max(over, key=lambda cover: (cover.call < 0, cover.start_ns), default=None)
            piece = piece or self._uncovered(row, begin_ns, until_ns)
            pieces.append(piece._replace(start_ns=begin_ns, end_ns=until_ns))
        return _joined(pieces, least_ns)

    def _covers(self, start_ns: int, end_ns: int, least_ns: int, call: int | None) -> list[Piece]:
        """The pauses of the profiler that overlap an interval for `least_ns`, and such calls of the
        thread of `call` (-1: unknown, None: no calls) until that call returns; all uncut."""
        trace = self.timeline.trace
        pauses = trace.overhead
        overlap = np.minimum(pauses.end_ns, end_ns) - np.maximum(pauses.start_ns, start_ns)
        rows = np.flatnonzero((overlap >= least_ns) & (self._pause_kinds >= 0))[:_MANY]
        pieces = [self._pause_piece(row) for row in rows.tolist()]
        if call is None:
            return pieces
        if call >= 0:
            end_ns = min(end_ns, int(trace.calls.end_ns[call]))
        thread = launching_thread(trace, self.timeline.launches, call)
        rows = self._calls_within(start_ns, end_ns, thread, least_ns)[:_MANY]
        return pieces + [self._call_piece(row) for row in rows.tolist()]

    def _pause_piece(self, pause: int) -> Piece:
        start_ns, end_ns, name = self._event(self.timeline.trace.overhead, pause)
        cause = tuple(_PAUSES)[self._pause_kinds[pause]]
        evidence = f"the profiler reports {name}: {duration(end_ns - start_ns)}"
        return Piece(cause, evidence, known=True, start_ns=start_ns, end_ns=end_ns)

    def _call_piece(self, call: int) -> Piece:
        """A whole call, compared with the other calls of its name."""
        calls = self.timeline.trace.calls
        start_ns, end_ns, name = self._event(calls, call)
        cause = tuple(_CALLS)[self._call_kinds[call]]
        evidence = f"{name} took {duration(end_ns - start_ns)}"
        same = np.flatnonzero(calls.name == calls.name[call])
        others_ns = calls.length_ns[same[same != call]]
        is_longer = False
        if len(others_ns):
            median_ns = int(np.median(others_ns))
            many = f"{len(others_ns)} other calls (median)"
            of = "1 other call" if len(others_ns) == 1 else many
            evidence += f", its {of} {duration(median_ns)}"
            is_longer = len(others_ns) >= 3 and end_ns - start_ns > OUTLIER_FACTOR * median_ns
        if cause == "launch" and call in self._first_replays:
            cause = "first_replay"
            evidence += "; it is the first launch of its graph in the trace"
        elif cause in ("launch", "module_loading") and call in self._first_launches:
            cause = "module_loading"
            evidence += "; it is the first launch of its kernel in the trace"
        known = is_longer or cause not in _USUAL
        return Piece(cause, evidence, call, known, start_ns=start_ns, end_ns=end_ns)

    def _event(self, events: HostEvents, row: int) -> tuple[int, int, str]:
        name = shorten(self.timeline.trace.names[events.name[row]], NAME_CELLS)
        return int(events.start_ns[row]), int(events.end_ns[row]), name

    def _calls_within(
        self, start_ns: int, end_ns: int, thread: tuple[int, int] | None, least_ns: int = 1
    ) -> Int64s:
        """The calls of a thread (of all for None) that overlap an interval for `least_ns`."""
        calls = self.timeline.trace.calls
        until = int(np.searchsorted(calls.start_ns, end_ns))
        begun = calls.take(slice(until))
        overlap = np.minimum(begun.end_ns, end_ns) - np.maximum(begun.start_ns, start_ns)
        overlapping = overlap >= least_ns
        if thread is not None:
            overlapping &= (begun.pid == thread[0]) & (begun.tid == thread[1])
        return np.flatnonzero(overlapping)

    def _uncovered(self, row: int, start_ns: int, end_ns: int) -> Piece:
        """A part of a gap in which no long call of the launching thread ran."""
        trace = self.timeline.trace
        if _covered_ns(self._captured, start_ns, end_ns) >= (end_ns - start_ns) / 2:
            evidence = "the host captured a graph, which runs nothing"
            return Piece("graph_capture", evidence, known=True)
        kind, call = self._kind_at(row, start_ns), int(self.timeline.gaps.call[row])
        late = call >= 0 and trace.calls.start_ns[call] <= start_ns
        piece = None
        if not late and kind not in (GRAPH_INTERNAL, UNLINKED):
            thread = launching_thread(trace, self.timeline.launches, call)
            piece = self._short_calls(start_ns, end_ns, thread, 0.5, _KNOWN)
        piece = piece or self._short_calls(start_ns, end_ns, None, 0.8, _HEAVY)
        if piece is not None:
            return piece
        if late:
            return self._late(start_ns, end_ns, call, kind)
        if self._is_edge(row):
            evidence = (
                "before the first or after the last step, where no call of the host explains it"
            )
            return Piece("window_edge", evidence)
        if call < 0:
            evidence = "the launch call of the op that ends the gap is not in the trace"
            return Piece("unlinked", evidence)
        return Piece("host", "the launching thread was outside of any call")

    def _late(self, start_ns: int, end_ns: int, call: int, kind: int) -> Piece:
        """A part after the start of the launch call of the op that ends the gap."""
        calls = self.timeline.trace.calls
        thread = int(calls.pid[call]), int(calls.tid[call])
        beside = self._calls_within(start_ns, end_ns, thread, int(_ALL * (end_ns - start_ns)))
        for row in beside[beside > call][:1].tolist():
            # Host and device waited for the same.
            piece = self._call_piece(row)
            if piece.cause == "call" and piece.known:
                return piece._replace(late=True)
        called_ns, _, name = self._event(calls, call)
        before = duration(start_ns - called_ns)
        if call in self._first_replays:
            evidence = f"{name} began {before} before, the first launch of its graph in the trace"
            return Piece("first_replay", evidence, call, known=True, late=True)
        if kind == DEPENDENCY:
            evidence = f"launched by {name} {before} before, it waited for a stream or an event"
            return Piece("wait", evidence, call, late=True)
        return Piece(
            "late_start", f"launched by {name} {before} before, the op began late", call, late=True
        )

    def _short_calls(
        self,
        start_ns: int,
        end_ns: int,
        thread: tuple[int, int] | None,
        share: float,
        causes: Sequence[Cause],
    ) -> Piece | None:
        """The first of some causes whose many calls together cover `share` of an interval."""
        within = self._calls_within(start_ns, end_ns, thread)
        calls = self.timeline.trace.calls
        for cause in causes:
            chosen = within[self._call_kinds[within] == tuple(_CALLS).index(cause)]
            together = union(calls.start_ns[chosen], calls.end_ns[chosen])
            covered_ns = _covered_ns(together, start_ns, end_ns)
            if not len(chosen) or covered_ns < share * (end_ns - start_ns):
                continue
            longest = int(chosen[calls.length_ns[chosen].argmax()])
            name = self._event(calls, longest)[2]
            times = f"{len(chosen)} calls like {name}" if len(chosen) > 1 else name
            return Piece(cause, f"{times} took {duration(covered_ns)}", longest, known=True)
        return None

    def _kind_at(self, row: int, at_ns: int) -> int:
        """The class of the part of a gap at a time; of its first part for a time before it."""
        parts = self.timeline.parts.of_gaps(row, row + 1)
        place = int(np.searchsorted(parts.start_ns, at_ns, side="right")) - 1
        return int(parts.kind[max(place, 0)])

    def _is_edge(self, row: int) -> bool:
        gaps, steps = self.timeline.gaps, self.timeline.steps
        launched = np.flatnonzero(steps.gpu_ops)
        if not len(launched):
            return False
        before, after = (int(steps.op_step[op]) for op in (gaps.prev[row], gaps.next[row]))
        first = int(launched[steps.span.start_ns[launched].argmin()])
        begins = before < 0 and after in (-1, first)
        early = gaps.end_ns[row] <= steps.span.start_ns[launched].min()
        return bool(
            (begins and early) or (after < 0 and gaps.start_ns[row] >= steps.span.end_ns.max())
        )


def _covered_ns(intervals: Intervals, start_ns: int, end_ns: int) -> int:
    span = Intervals(np.array([start_ns]), np.array([end_ns]))
    return int(covered_inside(intervals, span)[0])


def _joined(pieces: list[Piece], least_ns: int) -> list[Piece]:
    """The pieces, with neighbours of one cause and call joined, and short ones given to the longer
    neighbour. What follows the launch call stays with the host's delay unless it is longer."""
    pieces = _same_joined(pieces)
    while len(pieces) > 1:
        total_ns = pieces[-1].end_ns - pieces[0].start_ns
        small = [
            piece
            for piece in pieces
            if piece.length_ns < least_ns or (piece.late and 2 * piece.length_ns < total_ns)
        ]
        if not small:
            break
        place = pieces.index(min(small, key=lambda piece: piece.length_ns))
        sides = [side for side in (place - 1, place + 1) if 0 <= side < len(pieces)]
        other = max(sides, key=lambda side: pieces[side].length_ns)
        first, second = sorted((place, other))
        kept = pieces[other]._replace(start_ns=pieces[first].start_ns, end_ns=pieces[second].end_ns)
        pieces = _same_joined([*pieces[:first], kept, *pieces[second + 1 :]])
    return pieces


def _same_joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and (joined[-1].cause, joined[-1].call) == (piece.cause, piece.call):
            joined[-1] = joined[-1]._replace(end_ns=piece.end_ns)
        else:
            joined.append(piece)
    return joined
