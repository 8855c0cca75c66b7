"""The activity of the launching thread while the GPU waited for it: host_wait, cut into pieces.

At each moment the thread is in one of `HOST_WAIT_LABELS`: in a CUDA call of one of the kinds, or in
its own code ("python") where no CUDA call runs. If calls are nested, the first kind in the order of
the labels counts. The pieces add up to the host_wait time exactly.
"""

import re
from dataclasses import replace

import numpy as np

from decodescope.analyzer.timing.gaps import HOST_WAIT, GapParts, Gaps
from decodescope.analyzer.timing.intervals import covered_inside, stretches, union
from decodescope.analyzer.timing.launches import first_matches, threads_at
from decodescope.analyzer.trace import HostEvents, Int8s, Int64s, Trace

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


def find_host_waits(trace: Trace, gaps: Gaps, parts: GapParts) -> GapParts:
    """The host_wait parts among `parts`, cut where the launching thread's activity changes; their
    kind indexes `HOST_WAIT_LABELS`.

    In a CPU capture, and where no API calls are known, every piece is "python".
    """
    late = parts.take(parts.kind == HOST_WAIT)
    waits = replace(late, kind=np.full(len(late), PYTHON, np.int8))
    if trace.on_cpu or not len(waits):
        return waits
    calls, kinds = trace.calls, call_kinds(trace)
    launch_starts = calls.starts.take(gaps.call[waits.gap])
    pieces = []
    for call_rows, wait_rows in threads_at(calls, np.arange(len(calls)), launch_starts):
        of_thread = waits.take(wait_rows)
        by_start = of_thread.take(np.argsort(of_thread.start_ns, kind="stable"))
        waiting = union(by_start.start_ns, by_start.end_ns)
        # Most calls of a thread launch, and overlap no wait.
        call_rows = call_rows[covered_inside(waiting, calls.take(call_rows)) > 0]
        pieces.append(_cut(of_thread, *_activity(calls.take(call_rows), kinds[call_rows])))
    joined = GapParts.concatenate(pieces)
    return joined.take(np.argsort(joined.gap, kind="stable"))


def call_kinds(trace: Trace) -> Int8s:
    """For each call, the index in `HOST_WAIT_LABELS` of the first kind that its name matches."""
    return first_matches(trace, trace.calls, tuple(_KINDS.values()))


def _activity(calls: HostEvents, kinds: Int8s) -> tuple[Int64s, Int8s]:
    """When the activity of the thread that made `calls`, of the given kinds, changes, and its label
    from then on; the first row begins before all times."""
    busy = [
        union(calls.start_ns[kinds == kind], calls.end_ns[kinds == kind])
        for kind in range(len(_KINDS))
    ]
    edges_ns = [column for times in busy for column in (times.start_ns, times.end_ns)]
    since_ns = np.sort(np.concatenate(edges_ns))
    inside = [
        np.searchsorted(times.start_ns, since_ns, side="right")
        > np.searchsorted(times.end_ns, since_ns, side="right")
        for times in busy
    ]
    label = np.select(inside, range(len(_KINDS)), default=PYTHON).astype(np.int8)
    changes = np.flatnonzero(np.diff(label, prepend=PYTHON))
    before = np.iinfo(np.int64).min
    return np.append(before, since_ns[changes]), np.append(np.int8(PYTHON), label[changes])


def _cut(waits: GapParts, since_ns: Int64s, label: Int8s) -> GapParts:
    """Each of `waits` (none empty) cut where the activity of its thread changes."""
    first = np.searchsorted(since_ns, waits.start_ns, side="right") - 1
    last = np.searchsorted(since_ns, waits.end_ns, side="left") - 1
    row, whole = stretches(first, last - first + 1)
    until_ns = np.append(since_ns[1:], np.iinfo(np.int64).max)
    return GapParts(
        np.maximum(since_ns[row], waits.start_ns[whole]),
        np.minimum(until_ns[row], waits.end_ns[whole]),
        waits.gap[whole],
        label[row],
    )
