"""The causes of one gap: calls of the launching thread, pauses of the profiler, the first replay of
a graph, or nothing that the trace shows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.text.formatting import duration, shorten
from decodescope.analyzer.timing.gaps import DEPENDENCY, GRAPH_INTERNAL, UNLINKED
from decodescope.analyzer.timing.interruptions.interruption import (
    CALLS,
    HEAVY,
    KNOWN,
    NAME_CELLS,
    PAUSES,
    Cause,
    HostRecord,
)
from decodescope.analyzer.timing.interruptions.typical import MIN_INTERRUPTION_NS, OUTLIER_FACTOR
from decodescope.analyzer.timing.intervals import covered_until, union
from decodescope.analyzer.timing.timeline import Timeline

_PIECE_SHARE = 0.05
_MANY = 100


class Piece(NamedTuple):
    """A part of a gap with one cause; `call` indexes `Trace.calls` (-1: none), `known` says that
    the trace shows the cause beyond doubt, `late` that the op had been launched, so that the host
    was not interrupted."""

    start_ns: int
    end_ns: int
    cause: Cause
    evidence: str
    call: int = -1
    known: bool = False
    late: bool = False

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Cover(NamedTuple):
    """A long call or pause over part of a gap; of several, the one that began last counts, pauses
    of the profiler first."""

    start_ns: int
    end_ns: int
    call: int
    pause: int


@dataclass(frozen=True, eq=False)
class GapCauses:
    """Finds the causes of single gaps of one timeline."""

    timeline: Timeline

    @cached_property
    def host(self) -> HostRecord:
        return HostRecord(self.timeline)

    def of_gap(self, row: int, least_ns: int) -> list[Piece]:
        """The gap in row `row` of the timeline's gaps as adjacent pieces, each with its cause.

        A piece is at least `least_ns` and 5 % of the gap long, if there are several.
        """
        gaps = self.timeline.gaps
        start_ns, end_ns = int(gaps.start_ns[row]), int(gaps.end_ns[row])
        least_ns = max(least_ns, MIN_INTERRUPTION_NS, int((end_ns - start_ns) * _PIECE_SHARE))
        covers = list(self._covers(row, start_ns, end_ns, least_ns))
        times_ns = {start_ns, end_ns}.union(*((cover.start_ns, cover.end_ns) for cover in covers))
        if (call := self._launch(row)) is not None and call >= 0:
            calls = self.timeline.trace.calls
            times_ns |= {int(calls.start_ns[call]), int(calls.end_ns[call])}
        edges = sorted(time for time in times_ns if start_ns <= time <= end_ns)
        pieces = []
        for begin_ns, until_ns in pairwise(edges):
            over = [c for c in covers if c.start_ns <= begin_ns and c.end_ns >= until_ns]
            if over:
                chosen = max(over, key=lambda c: (c.pause >= 0, c.start_ns))
                pieces.append(self._covered(begin_ns, until_ns, chosen))
            else:
                pieces.append(self._uncovered(row, begin_ns, until_ns))
        return _joined(pieces, least_ns)

    def of_call(self, call: int) -> Piece:
        """A call as a piece of its own."""
        calls = self.timeline.trace.calls
        start_ns, end_ns = int(calls.start_ns[call]), int(calls.end_ns[call])
        return self._covered(start_ns, end_ns, _Cover(start_ns, end_ns, call, -1))

    def of_pause(self, pause: int) -> Piece | None:
        """A pause of the profiler as a piece, None if it is none that stops the program."""
        if self.host.pause_kinds[pause] < 0:
            return None
        overhead = self.timeline.trace.overhead
        start_ns, end_ns = int(overhead.start_ns[pause]), int(overhead.end_ns[pause])
        return self._covered(start_ns, end_ns, _Cover(start_ns, end_ns, -1, pause))

    def _covers(self, row: int, start_ns: int, end_ns: int, least_ns: int) -> Iterator[_Cover]:
        """The long calls of the launching thread (until the launch call of the next op returns),
        and the pauses of the profiler."""
        trace = self.timeline.trace
        pauses = trace.overhead
        overlap = np.minimum(pauses.end_ns, end_ns) - np.maximum(pauses.start_ns, start_ns)
        for pause in np.flatnonzero((overlap >= least_ns) & (self.host.pause_kinds >= 0))[:_MANY]:
            index = int(pause)
            yield _Cover(int(pauses.start_ns[index]), int(pauses.end_ns[index]), -1, index)
        call, until_ns = self._launch(row), end_ns
        if call is None:
            return
        if call >= 0:
            until_ns = min(end_ns, int(trace.calls.end_ns[call]))
        long_calls = self.host.calls_within(start_ns, until_ns, self.host.thread(call), least_ns)
        for index in long_calls[:_MANY].tolist():
            yield _Cover(
                int(trace.calls.start_ns[index]), int(trace.calls.end_ns[index]), index, -1
            )

    def _launch(self, row: int) -> int | None:
        """The launch call of the op that ends the gap, -1 if it is unknown; None inside a graph."""
        call = int(self.timeline.gaps.call[row])
        inside = call >= 0 and self._kind_at(row, -1) == GRAPH_INTERNAL
        return None if inside else call

    def _covered(self, start_ns: int, end_ns: int, cover: _Cover) -> Piece:
        trace = self.timeline.trace
        took = duration(cover.end_ns - cover.start_ns)
        if cover.pause >= 0:
            name = shorten(trace.names[trace.overhead.name[cover.pause]], NAME_CELLS)
            cause = PAUSES[self.host.pause_kinds[cover.pause]][0]
            return Piece(
                start_ns, end_ns, cause, f"the profiler reports {name}: {took}", known=True
            )
        cause = self.host.cause_of(cover.call)
        name = shorten(trace.names[trace.calls.name[cover.call]], NAME_CELLS)
        evidence, known = f"{name} took {took}", cause in KNOWN
        if others := self.host.others_of(cover.call):
            number, median_ns = others
            of = "1 other call" if number == 1 else f"{number} other calls (median)"
            evidence += f", its {of} {duration(median_ns)}"
            length_ns = cover.end_ns - cover.start_ns
            known |= number >= 3 and length_ns > OUTLIER_FACTOR * median_ns
        if cause == "first_replay":
            evidence += "; it is the first launch of its graph in the trace"
        elif cause == "module_loading" and cover.call in self.host.first_launches:
            evidence += "; it is the first launch of its kernel in the trace"
        return Piece(start_ns, end_ns, cause, evidence, cover.call, known)

    def _uncovered(self, row: int, start_ns: int, end_ns: int) -> Piece:
        """A part of a gap in which no long call of the launching thread ran."""
        half = (end_ns - start_ns) / 2
        captured = np.array((start_ns, end_ns), dtype=np.int64)
        if np.diff(covered_until(self.host.captured, captured))[0] >= half:
            evidence = "the host captured a graph, which runs nothing"
            return Piece(start_ns, end_ns, "graph_capture", evidence, known=True)
        kind = self._kind_at(row, start_ns)
        call = int(self.timeline.gaps.call[row])
        late = call >= 0 and self.timeline.trace.calls.start_ns[call] <= start_ns
        if not late and kind not in (GRAPH_INTERNAL, UNLINKED):
            piece = self._short_calls(start_ns, end_ns, self.host.thread(call), 0.5)
            if piece is not None:
                return piece
        piece = self._short_calls(start_ns, end_ns, None, 0.8, HEAVY)
        if piece is not None:
            return piece
        if late:
            return self._late(start_ns, end_ns, call, kind)
        if self._is_edge(row):
            evidence = (
                "before the first or after the last step, where no call of the host explains it"
            )
            return Piece(start_ns, end_ns, "window_edge", evidence)
        if call < 0:
            evidence = "the launch call of the op that ends the gap is not in the trace"
            return Piece(start_ns, end_ns, "unlinked", evidence)
        return Piece(start_ns, end_ns, "host", "the launching thread was outside of any call")

    def _late(self, start_ns: int, end_ns: int, call: int, kind: int) -> Piece:
        trace = self.timeline.trace
        name = shorten(trace.names[trace.calls.name[call]], NAME_CELLS)
        before = duration(start_ns - int(trace.calls.start_ns[call]))
        if call in self.host.first_replays:
            evidence = f"{name} began {before} before, the first launch of its graph in the trace"
            return Piece(start_ns, end_ns, "first_replay", evidence, call, known=True, late=True)
        if kind == DEPENDENCY:
            evidence = f"launched by {name} {before} before, it waited for a stream or an event"
            return Piece(start_ns, end_ns, "wait", evidence, call, late=True)
        evidence = f"launched by {name} {before} before, the op began late"
        return Piece(start_ns, end_ns, "late_start", evidence, call, late=True)

    def _short_calls(
        self,
        start_ns: int,
        end_ns: int,
        thread: tuple[int, int] | None,
        share: float,
        kinds: frozenset[Cause] = KNOWN,
    ) -> Piece | None:
        """The known cause whose many calls together cover `share` of an interval."""
        within = self.host.calls_within(start_ns, end_ns, thread)
        calls = self.timeline.trace.calls
        for index, (cause, _) in enumerate(CALLS):
            chosen = within[self.host.call_kinds[within] == index]
            if cause not in kinds or not len(chosen):
                continue
            together = union(calls.start_ns[chosen], calls.end_ns[chosen])
            edges = np.array((start_ns, end_ns), dtype=np.int64)
            covered_ns = int(np.diff(covered_until(together, edges))[0])
            if covered_ns < share * (end_ns - start_ns):
                continue
            longest = int(chosen[calls.length_ns[chosen].argmax()])
            name = shorten(self.timeline.trace.names[calls.name[longest]], NAME_CELLS)
            times = f"{len(chosen)} calls like {name}" if len(chosen) > 1 else name
            evidence = f"{times} took {duration(covered_ns)}"
            return Piece(start_ns, end_ns, cause, evidence, longest, known=True)
        return None

    def _kind_at(self, row: int, at_ns: int) -> int:
        """The class of the part of a gap at a time; of its first part for a time before it."""
        parts = self.timeline.parts
        first, after = np.searchsorted(parts.gap, (row, row + 1)).tolist()
        starts = parts.start_ns[first:after]
        place = int(np.searchsorted(starts, at_ns, side="right")) - 1
        return int(parts.kind[first + max(place, 0)])

    def _is_edge(self, row: int) -> bool:
        """Whether a gap lies before the first step with ops, or after the last one."""
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
