"""The join of ops with their launch calls against a slow one written from its description."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.trace import Trace, row_numbers
from tests.helpers.kineto_events import Event, codes, event, op, trace_of


def slow_join(trace: Trace, op_index: int) -> int:
    ops, calls = trace.ops, trace.calls
    mine = [i for i in range(len(calls)) if 0 < ops.correlation[op_index] == calls.correlation[i]]
    kept: list[int] = []
    previous = -1
    for i in mine:
        inside = (
            previous >= 0
            and calls.pid[i] == calls.pid[previous]
            and calls.tid[i] == calls.tid[previous]
            and calls.end_ns[i] <= calls.end_ns[previous]
        )
        previous = i
        if not inside:
            kept.append(i)
    external = ops.external_id[op_index]
    meant = [i for i in kept if external > 0 and calls.external_id[i] == external]
    if len(kept) > 1 and meant:
        kept = meant
    before = [i for i in kept if calls.start_ns[i] <= ops.start_ns[op_index]]
    return before[-1] if before else kept[0] if kept else -1


def api_call(start: int, length: int, correlation: int, pid: int, external: int) -> Event:
    return event(
        "cuda_runtime",
        "cudaLaunchKernel",
        start,
        start + length,
        pid,
        1,
        correlation=correlation,
        **({"External id": external} if external else {}),
    )


calls_drawn = st.builds(
    api_call,
    st.integers(0, 40),
    st.integers(0, 9),
    st.integers(-1, 4),
    st.integers(1, 2),
    st.integers(0, 3),
)
ops_drawn = st.builds(
    lambda start, length, correlation, external: op(
        start, start + length, correlation, **{"External id": external + 1000 * (external > 3)}
    ),
    st.integers(0, 50),
    st.integers(0, 9),
    st.integers(-1, 4),
    st.integers(-1, 5),
)


@given(st.lists(calls_drawn, max_size=14), st.lists(ops_drawn, max_size=14))
def test_every_op_finds_the_call_that_the_description_names(
    calls: list[Event], ops: list[Event]
) -> None:
    trace = trace_of(*calls, *ops)
    expected = [slow_join(trace, index) for index in range(len(trace.ops))]
    assert trace.ops.launch.tolist() == expected


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(2**62), 2**62)), max_size=30))
def test_equal_rows_share_a_number(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    place = {row: number for number, row in enumerate(sorted(set(rows)))}
    assert row_numbers(*columns).tolist() == [place[row] for row in rows]


def test_two_processes_are_told_apart_by_external_ids() -> None:
    trace = trace_of(
        api_call(0, 5, 7, 1, 100),
        api_call(1, 5, 7, 2, 200),
        op(10, 20, 7, device=0, **{"External id": 100}),
        op(10, 20, 7, device=1, **{"External id": 200}),
        op(30, 40, 7, device=1),
    )
    assert trace.calls.pid[trace.ops.launch].tolist() == [1, 2, 2]
    assert codes(trace) == {"duplicate_correlation"}


def test_one_id_for_everything_is_joined_at_once() -> None:
    count = 20_000
    calls = [api_call(10 * i, 5, 1, 1, 0) for i in range(count)]
    ops = [op(10 * i + 7, 10 * i + 9, 1) for i in range(count)]
    assert trace_of(*calls, *ops).ops.launch.tolist() == list(range(count))
