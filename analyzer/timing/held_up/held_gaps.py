"""Gaps far outside of what the same gap of other steps, or the other gaps, show."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.timing.held_up.causes import HoldCauses, Piece
from decodescope.analyzer.timing.held_up.comparing import (
    FEW,
    MIN_HOLD_NS,
    OUTLIER_FACTOR,
    STEP_SHARE,
    UNSEEN_STEPS,
    HeldUp,
    Scale,
    is_outside,
    least_hold_ns,
    longest,
    rare,
)
from decodescope.analyzer.timing.held_up.habits import habits, upper_median
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int64s, rows_by

_UNSEEN_SHARE, _SEEN_SHARE, _SEEN_NS = 0.2, 0.01, 1_000_000
_USUAL = 0.99


def held_gaps(timeline: Timeline, causes: HoldCauses, scale: Scale) -> Iterator[HeldUp]:
    """The gaps that something held up, each as one or several pieces, not sorted."""
    gaps = timeline.gaps
    long = np.flatnonzero(gaps.length_ns >= MIN_HOLD_NS)
    long = long[gaps.length_ns[long] >= least_hold_ns(timeline, scale, gaps.next[long])]
    if not len(long):
        return
    before_ns = np.zeros(len(timeline.trace.ops), dtype=np.int64)
    before_ns[gaps.next] = gaps.length_ns
    habit = habits(timeline, scale.kind, gaps.next[long], before_ns)
    several = habit.instances >= FEW
    held = rare(
        habit, is_outside(gaps.length_ns[long], habit.typical_ns, habit.spread_ns) & several
    )
    for place in longest(gaps.length_ns[long], held):
        row, typical_ns = int(long[place]), int(habit.typical_ns[place])
        others = int(habit.instances[place]) - 1
        shown = f"at the same place of {others} other steps"
        least_ns = int(least_hold_ns(timeline, scale, gaps.next[[row]])[0])
        pieces = causes.of_gap(row, least_ns)
        yield from _apart(timeline, row, pieces, typical_ns, shown)
    few = long[~several]
    if len(few):
        yield from _few_gaps(timeline, causes, few, scale)


def _few_gaps(
    timeline: Timeline, causes: HoldCauses, few: Int64s, scale: Scale
) -> Iterator[HeldUp]:
    """Of the long gaps `few`, which have no instances to compare with, those that are held up."""
    gaps = timeline.gaps
    for device, mine in rows_by(gaps.device[few]).items():
        all_ns = gaps.length_ns[gaps.device == device]
        typical_ns = upper_median(all_ns)
        spread_ns = upper_median(np.abs(all_ns - typical_ns))
        here = few[mine]
        here = here[is_outside(gaps.length_ns[here], typical_ns, spread_ns)]
        here = here[~_recurring(timeline, here)]
        if not len(here):
            continue
        seen_ns, unseen_ns = _asked_ns(timeline, scale, here, all_ns)
        for place in longest(gaps.length_ns[here], gaps.length_ns[here] >= seen_ns):
            row = int(here[place])
            pieces = causes.of_gap(row, seen_ns)
            known_ns = sum(piece.length_ns for piece in pieces if piece.known)
            length_ns = int(gaps.length_ns[row])
            if 2 * known_ns >= length_ns or length_ns >= unseen_ns:
                shown = f"in {len(all_ns) - 1} other gaps of the device"
                yield from _apart(timeline, row, pieces, typical_ns, shown)


def _asked_ns(timeline: Timeline, scale: Scale, rows: Int64s, all_ns: Int64s) -> tuple[int, int]:
    """How long one of the gaps `rows` of a device must be to be held up by a cause that the trace
    shows, and by one that it does not; `all_ns` are the lengths of all gaps of the device."""
    gaps = timeline.gaps
    busy = timeline.busy[int(gaps.device[rows[0]])]
    rest_ns = int(busy.end_ns[-1] - busy.start_ns[0]) - int(gaps.length_ns[rows].sum())
    count = int(np.count_nonzero(timeline.steps.gpu_ops))
    if count:
        step_ns = scale.step_ns if count >= FEW else rest_ns // count
        seen_ns, unseen_ns = int(step_ns * STEP_SHARE), UNSEEN_STEPS * step_ns
    else:
        usual_ns = int(np.sort(all_ns)[int(_USUAL * (len(all_ns) - len(rows)))])
        seen_ns = max(int(rest_ns * _SEEN_SHARE), _SEEN_NS)
        unseen_ns = max(int(rest_ns * _UNSEEN_SHARE), OUTLIER_FACTOR * usual_ns)
    seen_ns = max(seen_ns, MIN_HOLD_NS)
    return seen_ns, max(seen_ns, unseen_ns)


def _recurring(timeline: Timeline, rows: Int64s) -> Bools:
    """Whether at least three of the gaps `rows` between ops of the same two names are of similar
    length: each at least half as long as the next longer one."""
    gaps, names = timeline.gaps, timeline.trace.ops.name
    length_ns, prev, after = gaps.length_ns[rows], names[gaps.prev[rows]], names[gaps.next[rows]]
    order = np.lexsort((length_ns, after, prev))
    keys = (prev[order], after[order])
    new = np.zeros(len(rows), dtype=np.int64)
    if len(rows) > 1:
        same = np.all([key[1:] == key[:-1] for key in keys], axis=0)
        similar = 2 * length_ns[order][:-1] >= length_ns[order][1:]
        new[1:] = np.cumsum(~(same & similar))
    counts = np.bincount(new)[new] if len(rows) else new
    recurring = np.zeros(len(rows), dtype=np.bool_)
    recurring[order] = counts >= FEW
    return recurring


def _apart(
    timeline: Timeline, row: int, pieces: list[Piece], typical_ns: int, shown: str
) -> Iterator[HeldUp]:
    """The pieces of a gap as what held it up, less what is usual."""
    gaps = timeline.gaps
    device, op = int(gaps.device[row]), int(gaps.next[row])
    spans = _without_usual(timeline, pieces, typical_ns)
    for piece, (start_ns, end_ns) in zip(pieces, spans, strict=True):
        evidence = f"{piece.evidence}; {duration(typical_ns)} {shown} (median)"
        host = _host_of(timeline, row, piece, end_ns - start_ns)
        yield HeldUp(device, start_ns, end_ns, piece.why, evidence, piece.call, op, host)


def _host_of(timeline: Timeline, row: int, piece: Piece, held_ns: int) -> tuple[int, int] | None:
    """When the host was held up by a piece of a gap: during its call, of a launch call for as long
    as the device was; without a call, before the launch call of the op that ended the gap."""
    calls, launched = timeline.trace.calls, int(timeline.gaps.call[row])
    if piece.late or (piece.call < 0 and launched < 0):
        return None
    if piece.call < 0:
        end_ns = int(calls.start_ns[launched])
        is_last = piece.end_ns >= end_ns
        return (end_ns - held_ns, end_ns) if is_last else (piece.start_ns, piece.start_ns + held_ns)
    start_ns, end_ns = int(calls.start_ns[piece.call]), int(calls.end_ns[piece.call])
    if piece.call == launched:
        start_ns = max(start_ns, end_ns - held_ns)
    return start_ns, end_ns


def _without_usual(
    timeline: Timeline, pieces: list[Piece], typical_ns: int
) -> list[tuple[int, int]]:
    """The pieces less the usual time: what their calls took, where at most twice the usual time is
    left beside them; else the longest gives it, before its call as far as it can."""
    calls = timeline.trace.calls
    during = [
        (piece.start_ns, piece.end_ns)
        if piece.call < 0 or piece.late
        else (
            max(piece.start_ns, int(calls.start_ns[piece.call])),
            min(piece.end_ns, int(calls.end_ns[piece.call])),
        )
        for piece in pieces
    ]
    left_ns = sum(piece.length_ns for piece in pieces) - sum(end - start for start, end in during)
    if 0 < left_ns <= 2 * typical_ns:
        return during
    main = max(range(len(pieces)), key=lambda place: pieces[place].length_ns)
    spans = [(piece.start_ns, piece.end_ns) for piece in pieces]
    (start_ns, end_ns), (began_ns, _) = spans[main], during[main]
    taken_ns = min(typical_ns, max(began_ns - start_ns, 0))
    spans[main] = start_ns + taken_ns, end_ns - (typical_ns - taken_ns)
    return spans
