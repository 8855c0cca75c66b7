"""Interruptions: single gaps and kernels far outside of what the other steps show.

A gap or an op is compared with the instances at its place in the other steps of its kind (see
`typical`). It is an interruption if it is longer than each of 100 µs, 20 % of the median step, 10 x
the median of the instances, and median + 20 x the median distance from it; and if at most two
instances, or 10 % of them, are. What recurs belongs to the steps.

With fewer than three instances, or outside of steps, it is compared with all gaps of its device in
the same way, and more is asked of it. If the trace shows the cause (see `host_record.KNOWN`), it
is at least 20 % as long as a step is without such gaps; else three times as long. Without steps, it
takes at least 1 % of the window and 1 ms if the cause is shown, else 20 % and ten times what 99 %
of the gaps take. Three such gaps of similar length between ops of the same two names recur.

The interruption is the excess over the median; the rest of the gap or op stays. On a CPU, where
leaf operators stand for GPU ops, there is none.
"""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.text.formatting import duration, shorten
from decodescope.analyzer.timing.interruptions.causes import GapCauses, Piece
from decodescope.analyzer.timing.interruptions.interruption import NAME_CELLS, Cause, Interruption
from decodescope.analyzer.timing.interruptions.typical import (
    FEW,
    MIN_INTERRUPTION_NS,
    MOST,
    OUTLIER_FACTOR,
    STEP_SHARE,
    StepMedians,
    is_outside,
    longest,
    min_interruption_ns,
    most_unexplained,
    place_times,
    rare,
    step_medians,
    upper_median,
)
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import KERNEL, Bools, GpuOps, Int64s, rows_by

_UNEXPLAINED: frozenset[Cause] = frozenset(("host", "late_start", "unlinked", "window_edge"))
_UNEXPLAINED_STEPS = 3
_UNEXPLAINED_SHARE, _KNOWN_SHARE, _KNOWN_NS = 0.2, 0.01, 1_000_000
_USUAL = 0.99
_ALONE = 0.9


def find_interruptions(timeline: Timeline) -> tuple[Interruption, ...]:
    """All interruptions of the devices, by device and time; empty for a clean trace."""
    if timeline.trace.on_cpu or not len(timeline.trace.ops):
        return ()
    causes, medians = GapCauses(timeline), step_medians(timeline)
    interruptions = [
        *_long_gaps(timeline, causes, medians),
        *_long_ops(timeline, medians),
        *_before_ops(timeline, causes, medians),
    ]
    return tuple(
        sorted(
            _single(timeline, interruptions),
            key=lambda interruption: (interruption.device, interruption.start_ns),
        )
    )


def _single(timeline: Timeline, interruptions: list[Interruption]) -> list[Interruption]:
    """`interruptions` without unexplained ones if a device has more of them than single ones."""
    devices = [
        interruption.device for interruption in interruptions if interruption.cause in _UNEXPLAINED
    ]
    most = max((devices.count(device) for device in set(devices)), default=0)
    if most <= most_unexplained(len(timeline.steps)):
        return interruptions
    return [
        interruption for interruption in interruptions if interruption.cause not in _UNEXPLAINED
    ]


def _before_ops(
    timeline: Timeline, causes: GapCauses, medians: StepMedians
) -> Iterator[Interruption]:
    """Calls and pauses that ended before the first launch, while the trace has no op yet: they are
    in no gap, but in the host's time of the first step."""
    trace, launches = timeline.trace, timeline.launches
    if not len(launches) or not medians.all_ns:
        return
    first = int(launches.call[0])
    first_ns = min(int(trace.calls.start_ns[first]), int(trace.ops.start_ns[0]))
    least_ns = max(MIN_INTERRUPTION_NS, int(medians.all_ns * STEP_SHARE))
    device = int(trace.ops.device[launches.first_op[0]])
    pieces = [causes.of_pause(pause) for pause in range(min(len(trace.overhead), MOST))]
    until = int(np.searchsorted(trace.calls.start_ns, first_ns))
    calls = trace.calls.take(slice(0, until))
    chosen = (calls.end_ns <= first_ns) & (calls.length_ns >= least_ns)
    chosen &= (calls.pid == trace.calls.pid[first]) & (calls.tid == trace.calls.tid[first])
    pieces += [causes.of_call(call) for call in np.flatnonzero(chosen)[:MOST].tolist()]
    reached_ns = None
    for piece in sorted((p for p in pieces if p is not None), key=lambda p: p.start_ns):
        inside = reached_ns is not None and piece.start_ns < reached_ns
        if not piece.known or piece.end_ns > first_ns or piece.length_ns < least_ns or inside:
            continue
        reached_ns = piece.end_ns
        yield Interruption(
            device=device,
            start_ns=piece.start_ns,
            end_ns=piece.end_ns,
            cause=piece.cause,
            evidence=f"{piece.evidence}; before the first op of the trace",
            call=piece.call,
            op=-1,
            host=(piece.start_ns, piece.end_ns),
            before_ops=True,
        )


def _long_gaps(
    timeline: Timeline, causes: GapCauses, medians: StepMedians
) -> Iterator[Interruption]:
    """The interruptions in gaps, each gap as one or several pieces, not sorted."""
    gaps = timeline.gaps
    long = np.flatnonzero(gaps.length_ns >= MIN_INTERRUPTION_NS)
    long = long[gaps.length_ns[long] >= min_interruption_ns(timeline, medians, gaps.next[long])]
    if not len(long):
        return
    length_ns = gaps.length_ns[long]
    before_ns = np.zeros(len(timeline.trace.ops), dtype=np.int64)
    before_ns[gaps.next] = gaps.length_ns
    times = place_times(timeline, medians.kind, gaps.next[long], before_ns)
    several = times.instances >= FEW
    outside = rare(times, is_outside(length_ns, times.typical_ns, times.spread_ns) & several)
    for place in longest(length_ns, outside):
        row, typical_ns = int(long[place]), int(times.typical_ns[place])
        others = int(times.instances[place]) - 1
        least_ns = int(min_interruption_ns(timeline, medians, gaps.next[[row]])[0])
        pieces = causes.of_gap(row, least_ns)
        compared = f"at the same place of {others} other steps"
        yield from _excess(timeline, row, pieces, typical_ns, compared)
    few = long[~several]
    if len(few):
        yield from _few_gaps(timeline, causes, few, medians)


def _few_gaps(
    timeline: Timeline, causes: GapCauses, few: Int64s, medians: StepMedians
) -> Iterator[Interruption]:
    """The interruptions in the long gaps `few`, which have no instances to compare with."""
    gaps = timeline.gaps
    for device, places in rows_by(gaps.device[few]).items():
        all_ns = gaps.length_ns[gaps.device == device]
        typical_ns = upper_median(all_ns)
        spread_ns = upper_median(np.abs(all_ns - typical_ns))
        rows = few[places]
        rows = rows[is_outside(gaps.length_ns[rows], typical_ns, spread_ns)]
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


def _excess(
    timeline: Timeline, row: int, pieces: list[Piece], typical_ns: int, compared: str
) -> Iterator[Interruption]:
    """The pieces of a gap as interruptions, less the typical time."""
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
            host=_host_of(timeline, row, piece, end_ns - start_ns),
        )


def _host_of(timeline: Timeline, row: int, piece: Piece, length_ns: int) -> tuple[int, int] | None:
    """When a piece of a gap interrupted the host: during its call, of a launch call for as long as
    the device; without a call, before the launch call of the op that ended the gap."""
    calls, launched = timeline.trace.calls, int(timeline.gaps.call[row])
    if piece.late or (piece.call < 0 and launched < 0):
        return None
    if piece.call < 0:
        end_ns = int(calls.start_ns[launched])
        if piece.end_ns >= end_ns:
            return end_ns - length_ns, end_ns
        return piece.start_ns, piece.start_ns + length_ns
    start_ns, end_ns = int(calls.start_ns[piece.call]), int(calls.end_ns[piece.call])
    if piece.call == launched:
        start_ns = max(start_ns, end_ns - length_ns)
    return start_ns, end_ns


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
    """Kernels that ran far longer than the others at their place, while no other op ran."""
    ops = timeline.trace.ops
    length_ns, step = ops.length_ns, timeline.steps.op_step
    long = np.flatnonzero((length_ns >= MIN_INTERRUPTION_NS) & (step >= 0) & (ops.kind == KERNEL))
    long = long[length_ns[long] >= min_interruption_ns(timeline, medians, long)]
    if not len(long):
        return
    times = place_times(timeline, medians.kind, long, length_ns)
    several = times.instances >= FEW
    outside = rare(times, is_outside(length_ns[long], times.typical_ns, times.spread_ns) & several)
    for place in longest(length_ns[long], outside):
        op, typical_ns = int(long[place]), int(times.typical_ns[place])
        start_ns, end_ns = _alone(ops, op, typical_ns)
        if end_ns - start_ns >= _ALONE * (int(length_ns[op]) - typical_ns):
            compared = f"at the same place of {int(times.instances[place]) - 1} other steps"
            yield _long_op(timeline, op, (start_ns, end_ns), f"{duration(typical_ns)} {compared}")
    few = long[~several]
    for op in few[np.argsort(-length_ns[few], kind="stable")[:MOST]].tolist():
        yield from _few_ops(timeline, medians, op)


def _few_ops(timeline: Timeline, medians: StepMedians, op: int) -> Iterator[Interruption]:
    """An op with fewer than three instances at its place, against all of its name and shape: an
    interruption if it is also three times as long as a step without it."""
    ops = timeline.trace.ops
    device, length_ns = int(ops.device[op]), int(ops.length_ns[op])
    same = (ops.name == ops.name[op]) & (ops.shape == ops.shape[op]) & (ops.device == device)
    all_ns = ops.length_ns[same]
    typical_ns = upper_median(all_ns)
    outside = is_outside(ops.length_ns[op], typical_ns, upper_median(np.abs(all_ns - typical_ns)))
    start_ns, end_ns = _alone(ops, op, typical_ns)
    busy, steps = timeline.busy[device], int(np.count_nonzero(timeline.steps.gpu_ops))
    rest_ns = int(busy.end_ns[-1] - busy.start_ns[0]) - (end_ns - start_ns)
    step_ns = medians.all_ns if steps >= FEW else rest_ns // max(steps, 1)
    is_alone = end_ns - start_ns >= _ALONE * (length_ns - typical_ns)
    if outside and is_alone and len(all_ns) > FEW and length_ns >= _UNEXPLAINED_STEPS * step_ns:
        compared = f"in {len(all_ns) - 1} others of its name and shape"
        yield _long_op(timeline, op, (start_ns, end_ns), f"{duration(typical_ns)} {compared}")


def _long_op(timeline: Timeline, op: int, span: tuple[int, int], typical: str) -> Interruption:
    ops = timeline.trace.ops
    name = shorten(short_name(timeline.trace.names[ops.name[op]]), NAME_CELLS)
    return Interruption(
        device=int(ops.device[op]),
        start_ns=span[0],
        end_ns=span[1],
        cause="long_op",
        evidence=f"{name} ran for {duration(int(ops.length_ns[op]))}; {typical} (median)",
        call=-1,
        op=op,
    )


def _alone(ops: GpuOps, op: int, typical_ns: int) -> tuple[int, int]:
    """When an op ran for longer than is typical, from the end of those that began before until the
    first that begins then."""
    start_ns, end_ns = int(ops.start_ns[op]) + typical_ns, int(ops.end_ns[op])
    beside = (ops.device == ops.device[op]) & (ops.start_ns < end_ns) & (ops.end_ns > start_ns)
    beside[op] = False
    before = beside & (ops.start_ns <= start_ns)
    start_ns = int(ops.end_ns[before].max(initial=start_ns))
    return start_ns, int(ops.start_ns[beside & ~before].min(initial=end_ns))
