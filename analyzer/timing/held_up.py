"""What is not of the steps: single gaps and ops far outside of what the others show.

A gap or an op is compared with the instances at its place in the other steps of its kind (see
`habits`). It is held up if it is longer than each of 100 µs, 20 % of the median step, 10 x the
median of the instances, and median + 20 x the median distance from it; and if at most two
instances, or 10 % of them, are. What recurs belongs to the steps.

With fewer than three instances, or outside of steps, it is compared with all gaps of its device in
the same way, and more is asked of it. If the trace shows the cause (see `host_record.KNOWN`), it
is at least 20 % as long as a step is without such gaps; else three times as long. Without steps, it
takes at least 1 % of the window and 1 ms if the cause is shown, else 20 % and ten times what 99 %
of the gaps take. Three such gaps of similar length between ops of the same two names recur.

What is set apart is the excess over the median, so that the rest of the gap or op stays. On a CPU,
where leaf operators stand for GPU ops, nothing is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.formatting import duration, shorten
from decodescope.analyzer.timing.habits import Habit, habits, step_kinds, upper_median
from decodescope.analyzer.timing.hold_causes import (
    MIN_HOLD_NS,
    NAME_CELLS,
    OUTLIER_FACTOR,
    HoldCauses,
    Piece,
)
from decodescope.analyzer.timing.host_record import Why
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, Bools, GpuOps, Int64s

STEP_SHARE = 0.2
SPREADS = 20
_FEW, _RARE = 3, 0.1
_ALONE = 0.9
_UNSEEN_STEPS, _UNSEEN_SHARE, _SEEN_SHARE, _SEEN_NS = 3, 0.2, 0.01, 1_000_000
_MOST = 100
_UNSEEN: frozenset[Why] = frozenset(("host", "late_start", "unlinked", "window_edge"))


@dataclass(frozen=True, slots=True)
class HeldUp:
    """The device did nothing for the steps in [start, end): `why` names the cause, `evidence` says
    what shows it. `call` indexes `Trace.calls`, `op` (that ended the gap, or ran long)
    `Trace.ops`; -1 for none. `host` is when the host was held up, None if it was not: it may have
    been ahead of the device. `before_ops`: it lies before the first op of the trace."""

    device: int
    start_ns: int
    end_ns: int
    why: Why
    evidence: str
    call: int
    op: int
    host: tuple[int, int] | None = None
    before_ops: bool = False

    @property
    def length_ns(self) -> int:
        """end - start."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """The kind of each step as a number, the median time of its kind, and of all steps (0 without
    any); `few_ns` is the time of a step, or of the window without steps, when its long gaps are
    left out."""

    kind: Int64s
    of_step_ns: Int64s
    step_ns: int


def find_held_up(timeline: Timeline) -> tuple[HeldUp, ...]:
    """Everything that held the devices up, by device and time; empty for a clean trace."""
    if timeline.trace.on_cpu or not len(timeline.trace.ops):
        return ()
    causes, scale = HoldCauses(timeline), _scale(timeline)
    found = [
        *_held_gaps(timeline, causes, scale),
        *_long_ops(timeline, scale),
        *_before_ops(timeline, causes, scale),
    ]
    return tuple(sorted(_single(timeline, found), key=lambda one: (one.device, one.start_ns)))


def _scale(timeline: Timeline) -> _Scale:
    steps = timeline.steps
    if not len(steps):
        none = np.zeros(0, dtype=np.int64)
        return _Scale(none, none, 0)
    kinds = step_kinds(timeline)
    number = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
    kind = np.array([number[one] for one in kinds], dtype=np.int64)
    launched = steps.gpu_ops > 0
    step_ns = upper_median(steps.time_ns[launched]) if launched.any() else 0
    of_kind_ns = np.full(len(number), step_ns, dtype=np.int64)
    for index in range(len(number)):
        mine = launched & (kind == index)
        if mine.any():
            of_kind_ns[index] = upper_median(steps.time_ns[mine])
    return _Scale(kind, of_kind_ns[kind], step_ns)


def _least_ns(timeline: Timeline, scale: _Scale, ops: Int64s) -> Int64s:
    """How long a gap before each of `ops` must at least be: 100 µs and 20 % of the median step."""
    step = timeline.steps.op_step[ops]
    of_step_ns = np.append(scale.of_step_ns, scale.step_ns)[step]
    return np.maximum((of_step_ns * STEP_SHARE).astype(np.int64), MIN_HOLD_NS)


def _held_gaps(timeline: Timeline, causes: HoldCauses, scale: _Scale) -> Iterator[HeldUp]:
    gaps, step = timeline.gaps, timeline.steps.op_step
    long = np.flatnonzero(gaps.length_ns >= MIN_HOLD_NS)
    long = long[gaps.length_ns[long] >= _least_ns(timeline, scale, gaps.next[long])]
    if not len(long):
        return
    before_ns = np.zeros(len(timeline.trace.ops), dtype=np.int64)
    before_ns[gaps.next] = gaps.length_ns
    habit = habits(timeline, scale.kind, gaps.next[long], before_ns)
    several = habit.instances >= _FEW
    held = _rare(habit, _outside(gaps.length_ns[long], habit.typical_ns, habit.spread_ns) & several)
    for place in _longest(gaps.length_ns[long], held):
        row, typical_ns = int(long[place]), int(habit.typical_ns[place])
        others = int(habit.instances[place]) - 1
        shown = f"at the same place of {others} other steps"
        least_ns = int(_least_ns(timeline, scale, gaps.next[[row]])[0])
        pieces = causes.of_gap(row, least_ns)
        yield from _apart(timeline, row, pieces, typical_ns, shown)
    few = long[~several]
    if len(few):
        yield from _few_gaps(timeline, causes, few, scale, bool((step >= 0).any()))


def _outside(values_ns: Int64s, typical_ns: Int64s | int, spread_ns: Int64s | int) -> Bools:
    return np.asarray(
        (values_ns > OUTLIER_FACTOR * typical_ns) & (values_ns > typical_ns + SPREADS * spread_ns)
    )


def _rare(habit: Habit, held: Bools) -> Bools:
    """`held` without those at places where more than two instances, and more than 10 %, are."""
    if not held.any():
        return held
    counts = np.bincount(habit.place[held], minlength=int(habit.place.max()) + 1)[habit.place]
    return held & ((counts < _FEW) | (counts <= _RARE * habit.instances))


def _longest(lengths_ns: Int64s, chosen: Bools) -> list[int]:
    """The places of the longest `_MOST` chosen lengths, in order."""
    places = np.flatnonzero(chosen)
    order = np.argsort(-lengths_ns[places], kind="stable")[:_MOST]
    return sorted(places[order].tolist())


def _few_gaps(
    timeline: Timeline, causes: HoldCauses, few: Int64s, scale: _Scale, with_steps: bool
) -> Iterator[HeldUp]:
    """Of the long gaps `few`, which have no instances to compare with, those that are held up."""
    gaps = timeline.gaps
    for device in np.unique(gaps.device[few]).tolist():
        all_ns = gaps.length_ns[gaps.device == device]
        here = few[gaps.device[few] == device]
        typical_ns = upper_median(all_ns)
        spread_ns = upper_median(np.abs(all_ns - typical_ns))
        here = here[_outside(gaps.length_ns[here], typical_ns, spread_ns)]
        here = here[~_recurring(timeline, here)]
        if not len(here):
            continue
        busy = timeline.busy[device]
        window_ns = int(busy.end_ns[-1] - busy.start_ns[0])
        rest_ns = window_ns - int(gaps.length_ns[here].sum())
        usual_ns = int(np.sort(all_ns)[int(0.99 * (len(all_ns) - len(here)))])
        steps = timeline.steps
        count = int(np.count_nonzero(steps.gpu_ops))
        if with_steps:
            step_ns = scale.step_ns if count >= _FEW else rest_ns // max(count, 1)
            seen_ns, unseen_ns = int(step_ns * STEP_SHARE), _UNSEEN_STEPS * step_ns
        else:
            seen_ns = max(int(rest_ns * _SEEN_SHARE), _SEEN_NS)
            unseen_ns = max(int(rest_ns * _UNSEEN_SHARE), OUTLIER_FACTOR * usual_ns)
        seen_ns = max(seen_ns, MIN_HOLD_NS)
        chosen = gaps.length_ns[here] >= seen_ns
        for place in _longest(gaps.length_ns[here], chosen):
            row = int(here[place])
            pieces = causes.of_gap(row, seen_ns)
            known_ns = sum(piece.length_ns for piece in pieces if piece.known)
            length_ns = int(gaps.length_ns[row])
            if 2 * known_ns >= length_ns or length_ns >= max(unseen_ns, seen_ns):
                shown = f"in {len(all_ns) - 1} other gaps of the device"
                yield from _apart(timeline, row, pieces, typical_ns, shown)


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
    recurring[order] = counts >= _FEW
    return recurring


def _apart(
    timeline: Timeline, row: int, pieces: list[Piece], typical_ns: int, shown: str
) -> Iterator[HeldUp]:
    """The pieces of a gap as what held it up; the longest gives what is usual back."""
    gaps = timeline.gaps
    device, op = int(gaps.device[row]), int(gaps.next[row])
    longest = max(range(len(pieces)), key=lambda place: pieces[place].length_ns)
    for place, piece in enumerate(pieces):
        start_ns, end_ns = piece.start_ns, piece.end_ns
        if place == longest:
            start_ns, end_ns = _without_usual(timeline, piece, typical_ns)
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


def _without_usual(timeline: Timeline, piece: Piece, typical_ns: int) -> tuple[int, int]:
    """The piece less the usual time, taken from beside its call as far as possible: first before
    it, then after it, then at the end. A call that, within twice the usual time, takes all of it,
    is what is left."""
    calls = timeline.trace.calls
    start_ns, end_ns = piece.start_ns, piece.end_ns
    if piece.call < 0:
        return start_ns, end_ns - typical_ns
    began_ns = max(int(calls.start_ns[piece.call]), start_ns)
    ended_ns = min(int(calls.end_ns[piece.call]), end_ns)
    if not piece.late and (end_ns - start_ns) - (ended_ns - began_ns) in range(2 * typical_ns + 1):
        return began_ns, ended_ns
    before_ns = max(int(calls.start_ns[piece.call]) - start_ns, 0)
    taken_ns = min(typical_ns, before_ns)
    return start_ns + taken_ns, end_ns - (typical_ns - taken_ns)


def _long_ops(timeline: Timeline, scale: _Scale) -> Iterator[HeldUp]:
    """Kernels that ran far longer than the others at their place, while no other op ran."""
    ops = timeline.trace.ops
    length_ns, step = ops.length_ns, timeline.steps.op_step
    long = np.flatnonzero((length_ns >= MIN_HOLD_NS) & (step >= 0) & (ops.kind == KERNEL))
    long = long[length_ns[long] >= _least_ns(timeline, scale, long)]
    if not len(long):
        return
    habit = habits(timeline, scale.kind, long, length_ns)
    several = habit.instances >= _FEW
    held = _rare(habit, _outside(length_ns[long], habit.typical_ns, habit.spread_ns) & several)
    for place in _longest(length_ns[long], held):
        op, typical_ns = int(long[place]), int(habit.typical_ns[place])
        start_ns, end_ns = _alone(ops, op, typical_ns)
        if end_ns - start_ns < _ALONE * (int(length_ns[op]) - typical_ns):
            continue
        name = shorten(timeline.trace.names[ops.name[op]], NAME_CELLS)
        evidence = (
            f"{name} ran for {duration(int(length_ns[op]))}; {duration(typical_ns)} at the same "
            f"place of {int(habit.instances[place]) - 1} other steps (median)"
        )
        yield HeldUp(int(ops.device[op]), start_ns, end_ns, "long_op", evidence, -1, op)


def _alone(ops: GpuOps, op: int, typical_ns: int) -> tuple[int, int]:
    """When an op ran for longer than is usual, from the end of those that began before until the
    first that begins then."""
    start_ns, end_ns = int(ops.start_ns[op]) + typical_ns, int(ops.end_ns[op])
    beside = (ops.device == ops.device[op]) & (ops.start_ns < end_ns) & (ops.end_ns > start_ns)
    beside[op] = False
    before = beside & (ops.start_ns <= start_ns)
    start_ns = int(ops.end_ns[before].max(initial=start_ns))
    return start_ns, int(ops.start_ns[beside & ~before].min(initial=end_ns))


def _before_ops(timeline: Timeline, causes: HoldCauses, scale: _Scale) -> Iterator[HeldUp]:
    """Calls and pauses that ended before the first launch, while the trace has no op yet: they are
    in no gap, but in the host's time of the first step."""
    trace, launches = timeline.trace, timeline.launches
    if not len(launches):
        return
    first = int(launches.call[0])
    first_ns = min(int(trace.calls.start_ns[first]), int(trace.ops.start_ns[0]))
    least_ns = max(MIN_HOLD_NS, int(scale.step_ns * STEP_SHARE))
    device = int(trace.ops.device[launches.first_op[0]])
    pieces = [causes.of_pause(pause) for pause in range(min(len(trace.overhead), _MOST))]
    until = int(np.searchsorted(trace.calls.start_ns, first_ns))
    calls = trace.calls.take(slice(0, until))
    mine = (calls.end_ns <= first_ns) & (calls.length_ns >= least_ns)
    mine &= (calls.pid == trace.calls.pid[first]) & (calls.tid == trace.calls.tid[first])
    pieces += [causes.of_call(call) for call in np.flatnonzero(mine)[:_MOST].tolist()]
    reached_ns = None
    for piece in sorted((p for p in pieces if p is not None), key=lambda p: p.start_ns):
        inside = reached_ns is not None and piece.start_ns < reached_ns
        if not piece.known or piece.end_ns > first_ns or piece.length_ns < least_ns or inside:
            continue
        reached_ns = piece.end_ns
        said = f"{piece.evidence}; before the first op of the trace"
        span = (piece.start_ns, piece.end_ns)
        yield HeldUp(device, *span, piece.why, said, piece.call, -1, span, before_ops=True)


def _single(timeline: Timeline, found: list[HeldUp]) -> list[HeldUp]:
    """`found` without unexplained ones if a device has more than three, and more than one in ten
    steps has one: a host that often pauses is of the steps."""
    unseen = [one.device for one in found if one.why in _UNSEEN]
    most = max((unseen.count(device) for device in set(unseen)), default=0)
    if most <= max(_FEW, _RARE * len(timeline.steps)):
        return found
    return [one for one in found if one.why not in _UNSEEN]
