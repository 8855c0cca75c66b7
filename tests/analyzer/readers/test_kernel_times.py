"""Kernels whose times cannot be right are left out and counted; those that clocks explain stay."""

import pytest

from decodescope.analyzer.trace import KERNEL, Trace
from tests.helpers.kineto_events import call, codes, op, trace_of


def with_times(*times: tuple[int, int]) -> Trace:
    """Launch calls 10 ms apart, and the kernel of each with a start and a length."""
    events = []
    for number, (start, length) in enumerate(times, 1):
        at = 10_000_000 * number
        events.append(call(at, at + 5_000, number))
        events.append(op(at + start, at + start + length, number))
    return trace_of(*events)


def test_kernels_with_invalid_times_are_left_out_and_counted() -> None:
    """CUPTI of CUDA 12.6 Update 2 to 13.0: zero or earlier times at the head of a window."""
    right = [(7_001, 900)] * 8
    trace = with_times((-9_000_000, 0), (-3_000_000, 4_000), (7_003, 0), *right)
    assert codes(trace) == {"invalid_kernel_times"}
    assert trace.findings[0].message.startswith("3 of 11 kernels have no length")
    assert trace.calls.start_ns[trace.ops.launch].tolist() == [
        10_000_000 * number for number in range(4, 12)
    ]
    assert len(trace.calls) == 11


@pytest.mark.parametrize(("untimed", "kept"), [(49, 51), (51, 0), (100, 0)])
def test_of_mostly_untimed_kernels_none_is_kept(untimed: int, kept: int) -> None:
    """A fill with a length is no kernel."""
    times = [(7_001, 0)] * untimed + [(7_001, 900)] * (100 - untimed)
    events = [call(10_000 * number, 10_000 * number + 5, number) for number in range(1, 101)]
    events += [
        op(10_000 * number + start, 10_000 * number + start + length, number)
        for number, (start, length) in enumerate(times, 1)
    ]
    trace = trace_of(*events, op(5, 95, cat="gpu_memset"))
    assert int((trace.ops.kind == KERNEL).sum()) == kept
    assert codes(trace) == {"invalid_kernel_times" if kept else "counted_kernels"}


def test_kernels_that_clocks_or_whole_microseconds_explain_are_kept() -> None:
    clocks_apart = with_times(*[(-2_000_000, 900)] * 3, (7_001, 900))
    assert (codes(clocks_apart), len(clocks_apart.ops)) == (set(), 4)
    whole_us = with_times((7_000, 0), (7_000, 1_000), (7_000, 1_000))
    assert (codes(whole_us), len(whole_us.ops)) == (set(), 3)
    slightly_early = with_times((-900_000, 901), *[(7_001, 900)] * 3)
    assert (codes(slightly_early), len(slightly_early.ops)) == (set(), 4)
    copies = trace_of(call(0, 5, 1), op(7, 7, 1, cat="gpu_memcpy"), op(9, 12))
    assert (codes(copies), len(copies.ops)) == (set(), 2)
    none_timed = trace_of(op(7, 7), op(9, 9))
    assert len(none_timed.ops) == 2


@pytest.mark.parametrize(
    ("launches", "copies", "kernels", "kept"), [(9, 8, 0, 0), (8, 8, 0, 8), (9, 8, 1, 9)]
)
def test_copies_of_a_window_that_lost_all_kernels_are_left_out(
    launches: int, copies: int, kernels: int, kept: int
) -> None:
    events = [call(100 * number, 100 * number + 5, number) for number in range(1, launches + 1)]
    for number in range(20, 20 + copies):
        events.append(call(100 * number, 100 * number + 5, number, name="cudaMemcpyAsync"))
        events.append(op(100 * number + 9, 100 * number + 12, number, cat="gpu_memcpy"))
    events += [op(100 * number + 9, 100 * number + 12, number) for number in range(1, kernels + 1)]
    trace = trace_of(*events)
    assert (len(trace.ops), codes(trace)) == (kept, set() if kept else {"lone_copies"})


def test_copies_beside_the_capture_of_a_graph_are_kept() -> None:
    begin, end = (
        call(0, 5, 50, name="cudaStreamBeginCapture"),
        call(9_000, 9_005, 51, name="cudaStreamEndCapture"),
    )
    captured = [call(100 * number, 100 * number + 5, number) for number in range(1, 40)]
    trace = trace_of(begin, *captured, end, op(5, 95, cat="gpu_memset"))
    assert (len(trace.ops), codes(trace)) == (1, set())
