"""Columns that grow hold every row once, however they are sorted."""

import tracemalloc
from dataclasses import fields

import numpy as np

from decodescope.analyzer.readers.trace_columns import Growing, host_events, sorted_host_events
from decodescope.analyzer.trace import HostEvents, Int64s

PARTS, ROWS = 100, 2_000


def part(rng: np.random.Generator) -> HostEvents:
    def column(high: int) -> Int64s:
        return rng.integers(0, high, ROWS)

    start = column(1 << 40)
    names = column(7).astype(np.int32)
    return host_events(
        start_ns=start, end_ns=start + column(99), name=names, tid=column(3), correlation=column(9)
    )


def test_rows_are_sorted_as_those_of_joined_parts() -> None:
    parts = [part(np.random.default_rng(number)) for number in range(3)]
    joined = HostEvents.concatenate(parts)
    found = sorted_host_events(Growing(HostEvents, parts), np.arange(7, dtype=np.int32)[::-1])
    order = np.lexsort(
        (6 - joined.name, joined.correlation, joined.tid, -joined.end_ns, joined.start_ns)
    )
    assert (found.start_ns == joined.start_ns[order]).all()
    assert (found.name == 6 - joined.name[order]).all()
    assert (found.pid == -1).all()
    assert len(found) == len(joined)


def test_no_row_is_held_twice() -> None:
    rng = np.random.default_rng()
    tracemalloc.start()
    try:
        growing = Growing(HostEvents)
        for _ in range(PARTS):
            growing.append(part(rng))
        events = sorted_host_events(growing, np.arange(7, dtype=np.int32))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    columns = sum(getattr(events, field.name).nbytes for field in fields(events))
    assert columns <= held
    assert peak < 1.5 * columns


def test_without_rows_there_are_empty_columns() -> None:
    assert len(Growing(HostEvents).keep(np.zeros(0, dtype=np.int64)).rows()) == 0
