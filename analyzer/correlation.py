"""Joins GPU ops with the host calls that launched them."""

import numpy as np

from decodescope.analyzer.trace import HostEvents, Int64s


def join_launches(
    op_start_ns: Int64s, op_correlation: Int64s, calls: HostEvents
) -> tuple[Int64s, int]:
    """For each op the index of its launch call, or -1; and how many calls share a correlation id.

    An op belongs to the call with its correlation id. Where several calls carry that id (merged
    files, an id that wrapped), it is the last that began no later than the op started, else the
    first; a call inside another of the same id and thread (a driver call below a runtime call)
    is passed over.
    """
    candidates, shared = _outermost_candidates(calls)
    launch = np.full(len(op_start_ns), -1, dtype=np.int64)
    linked = np.flatnonzero(op_correlation > 0)
    if not len(candidates) or not len(linked):
        return launch, shared
    ids = calls.correlation[candidates]
    wanted = op_correlation[linked]
    first = np.searchsorted(ids, wanted, side="left")
    after = np.searchsorted(ids, wanted, side="right")
    found = after > first
    launch[linked[found]] = candidates[first[found]]
    for k in np.flatnonzero(after - first > 1):
        starts = calls.start_ns[candidates[first[k] : after[k]]]
        before = int(np.searchsorted(starts, op_start_ns[linked[k]], side="right"))
        launch[linked[k]] = candidates[first[k] + max(before - 1, 0)]
    return launch, shared


def _outermost_candidates(calls: HostEvents) -> tuple[Int64s, int]:
    candidates = np.flatnonzero(calls.correlation > 0)
    order = np.argsort(calls.correlation[candidates], kind="stable")
    candidates = candidates[order].astype(np.int64, copy=False)
    if len(candidates) < 2:
        return candidates, 0
    before, after = candidates[:-1], candidates[1:]
    nested = (
        (calls.correlation[before] == calls.correlation[after])
        & (calls.tid[before] == calls.tid[after])
        & (calls.end_ns[after] <= calls.end_ns[before])
    )
    candidates = candidates[np.concatenate(([True], ~nested))]
    ids = calls.correlation[candidates]
    return candidates, int(np.count_nonzero(ids[1:] == ids[:-1]))
