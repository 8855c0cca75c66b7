"""Interruptions: single gaps and kernels far outside of what the other steps show.

A gap or an op is compared with the instances at its place in the other steps of its kind (see
`typical`). It is an interruption if it is longer than each of 100 µs, 20 % of the median step, 10 x
the median of the instances, and median + 20 x the median distance from it; and if at most two
instances, or 10 % of them, are. What recurs belongs to the steps: a cause that is met again and
again, as a call that waits, interrupts at most three steps of a device, or 10 % of them.

With fewer than three instances, or outside of steps, it is compared with all gaps of its device in
the same way, and more is asked of it. If the trace shows the cause (see `causes.Piece`), it
is at least 20 % as long as a step is without such gaps; else three times as long. Without steps, it
takes at least 1 % of the window and 1 ms if the cause is shown, else 20 % and ten times what 99 %
of the gaps take. Three such gaps of similar length between ops of the same two names recur.

The interruption is the excess over the median; the rest of the gap or op stays. On a CPU, where
leaf operators stand for GPU ops, there is none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.text.formatting import duration, shorten
from decodescope.analyzer.timing.interruptions.causes import NAME_CELLS, GapCauses, Piece
from decodescope.analyzer.timing.interruptions.interruption import Cause, Interruption
from decodescope.analyzer.timing.interruptions.typical import (
    FEW,
    MIN_INTERRUPTION_NS,
    OUTLIER_FACTOR,
    RARE_SHARE,
    STEP_SHARE,
    StepMedians,
    longest,
    min_interruption_ns,
    outliers,
    outside_of_all,
    step_medians,
)
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, Bools, GpuOps, Int64s, rows_by

_UNEXPLAINED: frozenset[Cause] = frozenset(("host", "late_start", "unlinked", "window_edge"))
# Once they are over, they do not come again.
_ONCE: frozenset[Cause] = frozenset(
    ("first_replay", "module_loading", "graph_upload", "graph_capture", "profiler")
)
_UNEXPLAINED_STEPS = 3
_UNEXPLAINED_SHARE, _KNOWN_SHARE, _KNOWN_NS = 0.2, 0.01, 1_000_000
_USUAL = 0.99
_ALONE = 0.9


def find_interruptions(timeline: Timeline) -> tuple[Interruption, ...]:
    """All interruptions of the devices, by device and time; empty for a clean trace. Unexplained
    ones are left out if a device has more of them than single ones."""
    if timeline.trace.on_cpu or not len(timeline.trace.ops):
        return ()
    causes, medians = GapCauses(timeline), step_medians(timeline)
    interruptions = [*_long_gaps(timeline, causes, medians), *_long_ops(timeline, medians)]
    unexplained = Counter(
        interruption.device for interruption in interruptions if interruption.cause in _UNEXPLAINED
    )
    # More than three, in more than one of ten steps, are how the host of a device runs.
    most = max(FEW, RARE_SHARE * len(timeline.steps))
    if max(unexplained.values(), default=0) > most:
        interruptions = [
            interruption for interruption in interruptions if interruption.cause not in _UNEXPLAINED
        ]
    recurring = _recurring_causes(timeline, interruptions, most)
    interruptions = [
        interruption
        for interruption in interruptions
        if (interruption.device, interruption.cause) not in recurring
    ]
    return tuple(
        sorted(interruptions, key=lambda interruption: (interruption.device, interruption.start_ns))
    )


def _recurring_causes(
    timeline: Timeline, interruptions: Sequence[Interruption], most: float
) -> set[tuple[int, Cause]]:
    """The devices and causes that interrupt more than `most` steps."""
    steps: dict[tuple[int, Cause], set[int]] = defaultdict(set)
    for interruption in interruptions:
        if interruption.cause not in _ONCE:
            step = int(timeline.steps.op_step[interruption.op])
            steps[interruption.device, interruption.cause].add(step)
    return {cause for cause, interrupted in steps.items() if len(interrupted) > most}


def _long_gaps(
    timeline: Timeline, causes: GapCauses, medians: StepMedians
) -> Iterator[Interruption]:
    """The interruptions in gaps, each gap as one or several pieces, not sorted."""
    gaps = timeline.gaps
    long = np.flatnonzero(gaps.length_ns >= MIN_INTERRUPTION_NS)
    least_ns = min_interruption_ns(timeline, medians, gaps.next[long])
    is_long = gaps.length_ns[long] >= least_ns
    long, least_ns = long[is_long], least_ns[is_long]
    if not len(long):
        return
    before_ns = np.zeros(len(timeline.trace.ops), dtype=np.int64)
    before_ns[gaps.next] = gaps.length_ns
    outside, few = outliers(timeline, medians, gaps.next[long], before_ns)
    for row, typical_ns, other_steps in outside:
        pieces = causes.of_gap(int(long[row]), int(least_ns[row]))
        compared = f"at the same place of {other_steps} other steps"
        yield from _excess(timeline, int(long[row]), pieces, typical_ns, compared)
    yield from _few_gaps(timeline, causes, long[few], medians)


def _few_gaps(
    timeline: Timeline, causes: GapCauses, few: Int64s, medians: StepMedians
) -> Iterator[Interruption]:
    gaps = timeline.gaps
    for device, places in rows_by(gaps.device[few]).items():
        all_ns = gaps.length_ns[slice(*timeline.gaps_of(device))]
        rows = few[places]
        outside, typical_ns = outside_of_all(gaps.length_ns[rows], all_ns)
        rows = rows[outside]
        rows = rows[~_recurring(timeline, rows)]
        if not len(rows):
            continue
        known_least_ns, least_ns = _asked_ns(timeline, medians, rows, all_ns)
        for place in longest(gaps.length_ns[rows], gaps.length_ns[rows] >= known_least_ns):
            row = int(rows[place])
            pieces = causes.of_gap(row, known_least_ns)
            known_ns = sum(piece.length_ns for piece in pieces if piece.known)
            length_ns = int(gaps.length_ns[row])
            if 2 * known_ns >= length_ns or length_ns >= least_ns:
                compared = f"in {len(all_ns) - 1} other gaps of the device"
                yield from _excess(timeline, row, pieces, typical_ns, compared)


def _asked_ns(
    timeline: Timeline, medians: StepMedians, rows: Int64s, all_ns: Int64s
) -> tuple[int, int]:
    """How long one of the gaps `rows` of a device must be to be an interruption whose cause the
    trace shows, and one whose cause it does not; `all_ns` are the lengths of all gaps of the
    device."""
    gaps = timeline.gaps
    busy = timeline.busy[int(gaps.device[rows[0]])]
    rest_ns = int(busy.end_ns[-1] - busy.start_ns[0]) - int(gaps.length_ns[rows].sum())
    steps = int(np.count_nonzero(timeline.steps.gpu_ops))
    if steps:
        step_ns = medians.all_ns if steps >= FEW else rest_ns // steps
        known_ns, unexplained_ns = int(step_ns * STEP_SHARE), _UNEXPLAINED_STEPS * step_ns
    else:
        usual_ns = int(np.sort(all_ns)[int(_USUAL * (len(all_ns) - len(rows)))])
        known_ns = max(int(rest_ns * _KNOWN_SHARE), _KNOWN_NS)
        unexplained_ns = max(int(rest_ns * _UNEXPLAINED_SHARE), OUTLIER_FACTOR * usual_ns)
    known_ns = max(known_ns, MIN_INTERRUPTION_NS)
    return known_ns, max(known_ns, unexplained_ns)


def _recurring(timeline: Timeline, rows: Int64s) -> Bools:
    """Whether at least three of the gaps `rows` between ops of the same two names are of similar
    length: each at least half as long as the next longer one."""
    gaps, names = timeline.gaps, timeline.trace.ops.name
    length_ns, prev, after = gaps.length_ns[rows], names[gaps.prev[rows]], names[gaps.next[rows]]
    order = np.lexsort((length_ns, after, prev))
    length_ns, prev, after = length_ns[order], prev[order], after[order]
    similar = (prev[1:] == prev[:-1]) & (after[1:] == after[:-1])
    similar &= 2 * length_ns[:-1] >= length_ns[1:]
    group = np.cumsum(np.append(True, ~similar)[: len(rows)]) - 1
    recurring = np.zeros(len(rows), dtype=np.bool_)
    recurring[order] = np.bincount(group)[group] >= FEW
    return recurring


def _excess(
    timeline: Timeline, row: int, pieces: list[Piece], typical_ns: int, compared: str
) -> Iterator[Interruption]:
    gaps = timeline.gaps
    spans = _without_typical(timeline, pieces, typical_ns)
    for piece, (start_ns, end_ns) in zip(pieces, spans, strict=True):
        yield Interruption(
            device=int(gaps.device[row]),
            start_ns=start_ns,
            end_ns=end_ns,
            cause=piece.cause,
            evidence=f"{piece.evidence}; {duration(typical_ns)} {compared} (median)",
            call=piece.call,
            op=int(gaps.next[row]),
        )


def _without_typical(
    timeline: Timeline, pieces: list[Piece], typical_ns: int
) -> list[tuple[int, int]]:
    """The pieces less the typical time: what their calls took, where at most twice the typical time
    is left beside them; else the longest gives it, before its call as far as it can."""
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


def _long_ops(timeline: Timeline, medians: StepMedians) -> Iterator[Interruption]:
    ops = timeline.trace.ops
    length_ns, step = ops.length_ns, timeline.steps.op_step
    long = np.flatnonzero((length_ns >= MIN_INTERRUPTION_NS) & (step >= 0) & (ops.kind == KERNEL))
    long = long[length_ns[long] >= min_interruption_ns(timeline, medians, long)]
    if not len(long):
        return
    outside, few = outliers(timeline, medians, long, length_ns)
    for row, typical_ns, other_steps in outside:
        compared = f"at the same place of {other_steps} other steps"
        yield from _long_op(timeline, int(long[row]), typical_ns, compared)
    few = long[few]
    for row in longest(length_ns[few], length_ns[few] > 0):
        yield from _few_ops(timeline, medians, int(few[row]))


def _few_ops(timeline: Timeline, medians: StepMedians, op: int) -> Iterator[Interruption]:
    """An op with fewer than three instances at its place, against all of its name and shape: an
    interruption if it is also three times as long as a step without it."""
    ops = timeline.trace.ops
    device, length_ns = int(ops.device[op]), int(ops.length_ns[op])
    same = (ops.name == ops.name[op]) & (ops.shape == ops.shape[op]) & (ops.device == device)
    all_ns = ops.length_ns[same]
    outside, typical_ns = outside_of_all(ops.length_ns[op], all_ns)
    compared = f"in {len(all_ns) - 1} others of its name and shape"
    for interruption in _long_op(timeline, op, typical_ns, compared):
        busy, steps = timeline.busy[device], int(np.count_nonzero(timeline.steps.gpu_ops))
        rest_ns = int(busy.end_ns[-1] - busy.start_ns[0]) - interruption.length_ns
        step_ns = medians.all_ns if steps >= FEW else rest_ns // max(steps, 1)
        if outside and len(all_ns) > FEW and length_ns >= _UNEXPLAINED_STEPS * step_ns:
            yield interruption


def _long_op(timeline: Timeline, op: int, typical_ns: int, compared: str) -> Iterator[Interruption]:
    """An op that ran longer than is typical, if hardly anything ran beside it in that time."""
    ops = timeline.trace.ops
    length_ns = int(ops.length_ns[op])
    start_ns, end_ns = _alone(ops, op, typical_ns)
    if end_ns - start_ns >= _ALONE * (length_ns - typical_ns):
        name = shorten(short_name(timeline.trace.names[ops.name[op]]), NAME_CELLS)
        ran = f"{name} ran for {duration(length_ns)}; {duration(typical_ns)} {compared} (median)"
        yield Interruption(int(ops.device[op]), start_ns, end_ns, "long_op", ran, call=-1, op=op)


def _alone(ops: GpuOps, op: int, typical_ns: int) -> tuple[int, int]:
    """When an op ran for longer than is typical, from the end of those that began before until the
    first that begins then."""
    start_ns, end_ns = int(ops.start_ns[op]) + typical_ns, int(ops.end_ns[op])
    beside = (ops.device == ops.device[op]) & (ops.start_ns < end_ns) & (ops.end_ns > start_ns)
    beside[op] = False
    before = beside & (ops.start_ns <= start_ns)
    start_ns = int(ops.end_ns[before].max(initial=start_ns))
    return start_ns, int(ops.start_ns[beside & ~before].min(initial=end_ns))
