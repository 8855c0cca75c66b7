"""Clocks of ranks that disagree, detected by collectives."""

import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, call, codes, op, trace_of

BASE = 1_790_857_026_000_000_000
KINDS = ("AllReduce_Sum_bf16_RING_LL", "AllGather_RING_LL", "ReduceScatter_Sum_f32_RING_LL")


def rank(base: int, waits_us: tuple[int, ...], kinds: tuple[str, ...] = KINDS) -> Trace:
    """Collectives that end after 1, 2, … ms and began `waits_us` before, and sends."""
    events: list[Event] = [call(0, 1, 1)]
    for k, (kind, wait) in enumerate(zip(kinds, waits_us, strict=True)):
        end = 1_000_000 * (k + 1)
        events.append(
            op(end - 1000 * wait, end, 1, name=f"ncclDevKernel_{kind}(ncclDevKernelArgs)")
        )
        events.append(op(end + 10, end + 20, 1, name="ncclDevKernel_SendRecv(ncclDevKernelArgs)"))
    return trace_of(*events, baseTimeNanoseconds=base)


def of(*traces: Trace) -> list[str]:
    merged = merge_ranks(traces)
    assert merged.merged is not None
    in_report = {finding.code for finding in analyze(merged.merged).report.health.findings}
    found = [one for one in merged.findings if one.code == "clocks_differ"]
    assert bool(found) == ("clocks_differ" in in_report)
    return [one.message for one in found]


@pytest.mark.parametrize("skew_us", [-500, -29, 0, 29, 500])
def test_a_skew_is_found_once_no_rank_waits_that_long(skew_us: int) -> None:
    messages = of(rank(BASE, (30, 700, 600)), rank(BASE + 1000 * skew_us, (600, 30, 700)))
    assert bool(messages) == (abs(skew_us) > 30)


def test_the_sentence_says_which_rank_and_how_far() -> None:
    skewed = rank(BASE + 450_000, (9, 9, 30))
    (message,) = of(rank(BASE, (300, 300, 300)), rank(BASE, (9, 9, 9)), skewed)
    assert "3 of 3 collectives of rank 2 do not overlap with rank 0's" in message
    assert "at least 0.441 ms" in message


def test_other_collectives_or_none_tell_nothing() -> None:
    fewer = rank(BASE + 500_000, (9, 9), KINDS[:2])
    swapped = rank(BASE + 500_000, (9, 9, 9), KINDS[::-1])
    for other in (fewer, swapped):
        assert of(rank(BASE, (9, 9, 9)), other) == []
    lone = trace_of(call(0, 1, 1), op(5, 9, 1), baseTimeNanoseconds=BASE)
    later = trace_of(call(0, 1, 1), op(5, 11, 1), baseTimeNanoseconds=BASE + 3)
    assert of(lone, later) == []


@pytest.mark.parametrize("base", [10**400, -(10**400), 2**61, 2**63, "soon", 1.5, []])
def test_a_base_time_that_is_none_is_a_finding(base: object) -> None:
    trace = trace_of(call(1, 3, 5), op(10, 60, 5), baseTimeNanoseconds=base)
    assert trace.base_ns == 0
    assert "bad_base_time" in codes(trace)
    other = trace_of(call(1, 3, 5), op(10, 61, 5), baseTimeNanoseconds=10**18)
    merged = merge_ranks([trace, other])
    assert merged.merged is None
    assert "no_common_clock" in {finding.code for finding in merged.findings}
