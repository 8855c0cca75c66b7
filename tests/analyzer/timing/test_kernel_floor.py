"""The floor of a burst against a plain loop over its gaps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.timing.gaps import MIN_BURST_GAPS, QUEUED_AHEAD_NS, kernel_floor_ns
from tests.helpers.kineto_events import Event, call, event, op, trace_of

KERNEL_NS = 900
LAUNCH_NS = 500


def burst(gaps: list[int], delay_ns: int, every_ns: int = 2 * LAUNCH_NS) -> list[Event]:
    """A delay kernel, and kernels launched at a pace behind it, with these gaps before them."""
    events = [call(0, LAUNCH_NS, 1), op(1_000, 1_000 + delay_ns, 1)]
    at = 1_000 + delay_ns
    for number, gap in enumerate(gaps):
        launched = (number + 1) * every_ns
        events.append(call(launched, launched + LAUNCH_NS, number + 2))
        events.append(op(at + gap, at + gap + KERNEL_NS, number + 2))
        at += gap + KERNEL_NS
    return events


@given(st.lists(st.integers(0, 100_000), min_size=MIN_BURST_GAPS, max_size=2 * MIN_BURST_GAPS))
def test_the_floor_is_the_99th_percentile(gaps: list[int]) -> None:
    ranked = sorted(gaps)
    assert (
        kernel_floor_ns(trace_of(*burst(gaps, 10**9))) == ranked[math.ceil(0.99 * len(ranked)) - 1]
    )


def test_only_gaps_of_work_queued_well_before_count() -> None:
    """The delay ends while half of the burst is queued: only that half counts."""
    half = MIN_BURST_GAPS + 20
    delay_ns = half * 2 * LAUNCH_NS + QUEUED_AHEAD_NS
    gaps = [1_000 + number for number in range(2 * half)]
    events = burst(gaps, delay_ns)
    calls = [one for one in events if one["cat"] == "cuda_runtime"]
    slowed = [call(10**9 + n, 10**9 + n + 1, n + 2) for n in range(half, 2 * half)]
    trace = trace_of(*calls[: half + 1], *slowed, *[e for e in events if e["cat"] == "kernel"])
    assert kernel_floor_ns(trace) == 1_000 + math.ceil(0.99 * half) - 1


@pytest.mark.parametrize("gaps", [0, 1, MIN_BURST_GAPS - 1])
def test_too_few_gaps_give_no_floor(gaps: int) -> None:
    assert kernel_floor_ns(trace_of(*burst([1_000] * gaps, 10**9))) is None


def test_a_host_that_was_not_ahead_gives_no_floor() -> None:
    events = burst([1_000] * 300, 1_000, every_ns=KERNEL_NS + 1_000)
    assert kernel_floor_ns(trace_of(*events)) is None


def test_copies_and_a_trace_of_nothing_give_no_floor() -> None:
    copies = [
        event | {"cat": "gpu_memcpy"} if event["cat"] == "kernel" else event
        for event in burst([1_000] * 300, 10**9)
    ]
    assert kernel_floor_ns(trace_of(*copies)) is None
    assert kernel_floor_ns(trace_of(event("cpu_op", "aten::mm", 0, 5, 1, 1))) is None
