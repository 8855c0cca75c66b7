"""What the launching thread did while the GPU waited for it: host_wait, cut into pieces.

At each moment the thread is in one of `HOST_WAIT_LABELS`: in a CUDA call of one of the kinds, or in
its own code ("python") where no CUDA call runs. If calls are nested, the first kind in the order of
the labels counts. The pieces add up to the host_wait time exactly.
"""

import re
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.timing.gaps import HOST_WAIT, GapParts, Gaps
from decodescope.analyzer.timing.intervals import covered_until, union
from decodescope.analyzer.trace import Bools, HostEvents, Int8s, Int64s, Intervals, Trace, grouped

_KINDS = {
    "sync": re.compile(r"Synchronize"),
    "allocation": re.compile(
        r"Malloc|Free|HostAlloc|Host(?:Unr|R)egister|Mem(?:Alloc|Create|Map|Unmap|Release)"
    ),
    "memcpy_api": re.compile(r"Memcpy|Memset"),
    "other_api": re.compile(""),
}
HOST_WAIT_LABELS = (*_KINDS, "python")
PYTHON = len(_KINDS)


@dataclass(frozen=True, slots=True, eq=False)
class HostWaits(Intervals):
    """Pieces of host_wait, in the order of the gaps and of time: `gap` indexes the gaps, `label`
    indexes `HOST_WAIT_LABELS`."""

    gap: Int64s
    label: Int8s


@dataclass(frozen=True, slots=True, eq=False)
class _Activity:
    """What one thread did: `label[i]` from `since_ns[i]` until the next row; the first row begins
    before all times."""

    since_ns: Int64s
    label: Int8s


def find_host_waits(trace: Trace, gaps: Gaps, parts: GapParts) -> HostWaits:
    """The host_wait parts among `parts`, cut where the launching thread's activity changes.

    In a CPU capture, and where no API calls are known, every piece is "python".
    """
    late = parts.take(parts.kind == HOST_WAIT)
    call = gaps.call[late.gap]
    waits = HostWaits(late.start_ns, late.end_ns, late.gap, np.full(len(late), PYTHON, np.int8))
    if trace.on_cpu or not len(late):
        return waits
    calls, kinds = trace.calls, call_kinds(trace)
    thread = {
        (int(calls.pid[call[mine[0]]]), int(calls.tid[call[mine[0]]])): waits.take(mine)
        for mine in grouped(np.arange(len(late)), calls.pid[call], calls.tid[call])
    }
    pieces = []
    for rows in calls.by_thread():
        mine = thread.get((int(calls.pid[rows[0]]), int(calls.tid[rows[0]])))
        if mine is not None:
            rows = rows[_touching(calls.take(rows), mine)]
            pieces.append(_cut(mine, _activity(calls, rows, kinds[rows])))
    joined = HostWaits.concatenate(pieces)
    return joined.take(np.argsort(joined.gap, kind="stable"))


def call_kinds(trace: Trace) -> Int8s:
    """For each call, the index in `HOST_WAIT_LABELS` of the first kind that its name matches."""
    used = np.bincount(trace.calls.name, minlength=len(trace.names))
    kinds = np.zeros(len(used), dtype=np.int8)
    for name in np.flatnonzero(used).tolist():
        matching = (i for i, kind in enumerate(_KINDS.values()) if kind.search(trace.names[name]))
        kinds[name] = next(matching)
    return kinds[trace.calls.name]


def _touching(calls: HostEvents, waits: HostWaits) -> Bools:
    """Whether each call overlaps one of `waits`: most calls of a thread launch, and do not."""
    order = np.argsort(waits.start_ns, kind="stable")
    waiting = union(waits.start_ns[order], waits.end_ns[order])
    covered = covered_until(waiting, calls.end_ns) - covered_until(waiting, calls.start_ns)
    return np.asarray(covered > 0)


def _activity(calls: HostEvents, rows: Int64s, kinds: Int8s) -> _Activity:
    """The activity of the thread that made the calls `rows`, of the given kinds."""
    begin_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    busy = [union(begin_ns[kinds == kind], end_ns[kinds == kind]) for kind in range(len(_KINDS))]
    since_ns = np.sort(np.concatenate([*(u.start_ns for u in busy), *(u.end_ns for u in busy)]))
    inside = [
        np.searchsorted(one.start_ns, since_ns, side="right")
        > np.searchsorted(one.end_ns, since_ns, side="right")
        for one in busy
    ]
    label = np.select(inside, range(len(_KINDS)), default=PYTHON).astype(np.int8)
    changes = np.flatnonzero(np.diff(label, prepend=PYTHON))
    before = np.iinfo(np.int64).min
    return _Activity(
        np.concatenate(([before], since_ns[changes])),
        np.concatenate((np.array([PYTHON], dtype=np.int8), label[changes])),
    )


def _cut(waits: HostWaits, activity: _Activity) -> HostWaits:
    """Each of `waits` (none empty) cut where the activity of its thread changes."""
    first = np.searchsorted(activity.since_ns, waits.start_ns, side="right") - 1
    last = np.searchsorted(activity.since_ns, waits.end_ns, side="left") - 1
    counts = last - first + 1
    whole = np.repeat(np.arange(len(waits)), counts)
    row = np.arange(len(whole)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    until_ns = np.append(activity.since_ns[1:], np.iinfo(np.int64).max)
    return HostWaits(
        np.maximum(activity.since_ns[row], waits.start_ns[whole]),
        np.minimum(until_ns[row], waits.end_ns[whole]),
        waits.gap[whole],
        activity.label[row],
    )
