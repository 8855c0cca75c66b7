"""Joins GPU ops with the host calls that launched them."""

import numpy as np

from decodescope.analyzer.timing.row_numbers import row_numbers
from decodescope.analyzer.trace import HostEvents, Int64s


def join_launches(
    op_start_ns: Int64s, op_correlation: Int64s, op_external_id: Int64s, calls: HostEvents
) -> tuple[Int64s, int]:
    """For each op the index of its launch call, or -1; and how many calls share a correlation id.

    An op belongs to the call with its correlation id. Where several calls carry that id (files of
    several processes put together, an id that wrapped), those with the op's external id are
    meant, if there are any; of these it is the last that began no later than the op started, else
    the first. A call inside another of the same id and thread (a driver call below a runtime
    call) is passed over.
    """
    candidates, shared = _outermost_candidates(calls)
    launch = np.full(len(op_start_ns), -1, dtype=np.int64)
    linked = np.flatnonzero(op_correlation > 0)
    if not len(candidates) or not len(linked):
        return launch, shared
    ids = calls.correlation[candidates]
    first = np.searchsorted(ids, op_correlation[linked], side="left")
    after = np.searchsorted(ids, op_correlation[linked], side="right")
    found = after > first
    launch[linked[found]] = candidates[first[found]]
    several = linked[after - first > 1]
    if len(several):
        launch[several] = _closest(
            op_start_ns[several],
            op_correlation[several],
            op_external_id[several],
            calls,
            candidates,
        )
    return launch, shared


def _closest(
    start_ns: Int64s, correlation: Int64s, external_id: Int64s, calls: HostEvents, among: Int64s
) -> Int64s:
    by_id = _last_before(start_ns, correlation, calls.start_ns[among], calls.correlation[among])
    chosen = among[by_id]
    with_external = among[calls.external_id[among] > 0]
    key = row_numbers(
        np.concatenate((correlation, calls.correlation[with_external])),
        np.concatenate((external_id, calls.external_id[with_external])),
    )
    op_key, call_key = key[: len(start_ns)], key[len(start_ns) :]
    meant = np.isin(op_key, call_key)
    order = np.argsort(call_key, kind="stable")
    exact = _last_before(
        start_ns[meant],
        op_key[meant],
        calls.start_ns[with_external[order]],
        call_key[order],
    )
    chosen[meant] = with_external[order][exact]
    return chosen


def _last_before(at_ns: Int64s, key: Int64s, call_start_ns: Int64s, call_key: Int64s) -> Int64s:
    """For each time the last call of the same key that began no later, else that key's first.

    The calls are sorted by key and then start; each key has at least one call.
    """
    order = np.lexsort(
        (
            np.repeat((0, 1), (len(call_key), len(key))),
            np.concatenate((call_start_ns, at_ns)),
            np.concatenate((call_key, key)),
        )
    )
    is_call = order < len(call_key)
    calls_before = np.empty(len(order), dtype=np.int64)
    calls_before[order] = np.cumsum(is_call)
    latest = calls_before[len(call_key) :] - 1
    return np.maximum(latest, np.searchsorted(call_key, key, side="left"))


def _outermost_candidates(calls: HostEvents) -> tuple[Int64s, int]:
    candidates = np.flatnonzero(calls.correlation > 0)
    order = np.argsort(calls.correlation[candidates], kind="stable")
    candidates = candidates[order].astype(np.int64, copy=False)
    if len(candidates) < 2:
        return candidates, 0
    before, after = candidates[:-1], candidates[1:]
    nested = (
        (calls.correlation[before] == calls.correlation[after])
        & (calls.pid[before] == calls.pid[after])
        & (calls.tid[before] == calls.tid[after])
        & (calls.end_ns[after] <= calls.end_ns[before])
    )
    candidates = candidates[np.concatenate(([True], ~nested))]
    ids = calls.correlation[candidates]
    return candidates, int(np.count_nonzero(ids[1:] == ids[:-1]))
