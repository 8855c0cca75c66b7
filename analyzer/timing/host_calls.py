"""Picks host API calls by name and by thread."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Int64s, Trace

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


def calls_named(trace: Trace, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """For each host call, whether `pattern` is found in its name."""
    used = np.bincount(trace.calls.name, minlength=len(trace.names))
    matches = np.zeros(len(used), dtype=np.bool_)
    for name in np.flatnonzero(used).tolist():
        matches[name] = bool(pattern.search(trace.names[name]))
    return np.asarray(matches[trace.calls.name], dtype=np.bool_)


def graph_launch_calls(trace: Trace) -> NDArray[np.bool_]:
    """For each host call, whether its name says that it launches a graph."""
    return calls_named(trace, _GRAPH_LAUNCH)


def calls_by_thread(trace: Trace, chosen: Int64s) -> Iterator[Int64s]:
    """The chosen calls of each thread, still in order of start."""
    pid, tid = trace.calls.pid[chosen], trace.calls.tid[chosen]
    order = np.lexsort((tid, pid))
    if len(order):
        changes = (np.diff(pid[order]) != 0) | (np.diff(tid[order]) != 0)
        yield from np.split(chosen[order], np.flatnonzero(changes) + 1)
