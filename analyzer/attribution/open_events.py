"""The ranges and operators that are open on a thread when each of its calls begins."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.trace import HostEvents, Int64s, Trace

# Programs nest ranges and operators less deep; more are made up.
MAX_OPEN = 256


def open_events(
    trace: Trace, calls: HostEvents
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each of one thread's calls, in order of start, the rows of `Trace.ranges` and those of
    `Trace.cpu_ops` that are open on that thread, outermost first.

    An event is open from its start until just before its end. At most `MAX_OPEN` are counted.
    """
    if not len(calls):
        return
    pid, tid = int(calls.pid[0]), int(calls.tid[0])
    sources = (trace.ranges, trace.cpu_ops)
    rows = [_during(one, pid, tid, calls) for one in sources]
    start = np.concatenate([one.start_ns[mine] for one, mine in zip(sources, rows, strict=True)])
    end = np.concatenate([one.end_ns[mine] for one, mine in zip(sources, rows, strict=True)])
    kind = np.repeat((0, 1), [len(mine) for mine in rows])
    order = np.lexsort((kind, -end, start))
    columns = (start[order], end[order], kind[order], np.concatenate(rows)[order])
    events = zip(*(column.tolist() for column in columns), strict=True)
    pending = next(events, None)
    opened: list[tuple[int, int, int]] = []
    for at in calls.start_ns.tolist():
        while pending is not None and pending[0] <= at:
            begin, until, which, row = pending
            opened = (
                [one for one in opened if one[0] > begin] if _any_over(opened, begin) else opened
            )
            if len(opened) < MAX_OPEN:
                opened.append((until, which, row))
            pending = next(events, None)
        if _any_over(opened, at):
            opened = [one for one in opened if one[0] > at]
        yield (
            tuple(row for _, which, row in opened if which == 0),
            tuple(row for _, which, row in opened if which == 1),
        )


def _any_over(opened: list[tuple[int, int, int]], at: int) -> bool:
    return any(one[0] <= at for one in opened)


def _during(events: HostEvents, pid: int, tid: int, calls: HostEvents) -> Int64s:
    """The thread's events that overlap with the time of the calls."""
    mine = (events.pid == pid) & (events.tid == tid)
    mine &= (events.start_ns <= calls.start_ns[-1]) & (events.end_ns > calls.start_ns[0])
    return np.flatnonzero(mine)
