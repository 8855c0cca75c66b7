"""One step as parts that add up, against sums over every nanosecond."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze
from tests.helpers.kineto_events import Event, call, op, span, trace_of

CAPTURE = {
    "device": "cuda", "device_name": "NVIDIA H200", "model": "m", "weights": "random",
    "variant": "eager", "dtype": "bf16", "batch": 1, "context": 4, "position": 4, "steps": 2,
    "bytes_per_step": 48_000, "unprofiled_step_ns": 90, "decodescope_version": "0",
}  # fmt: skip


def two_steps(**keys: object) -> Analysis:
    return analyze(
        trace_of(
            span(0, 100, "decode_step"), span(100, 190, "decode_step"),
            call(5, 8, 1), op(20, 40, 1, name="a"), call(50, 52, 2), op(60, 75, 2, name="b"),
            call(105, 108, 3), op(120, 150, 3, name="a"), call(151, 155, 4),
            op(160, 175, 4, cat="gpu_memcpy"),
            **keys,
        )
    )  # fmt: skip


def parts_of(analysis: Analysis) -> dict[str, int]:
    return {part.part: part.ns for part in analysis.report.answer.parts}


def with_peak(bytes_per_s: float) -> dict[str, object]:
    return {**CAPTURE, "measured_peak_bytes_per_s": bytes_per_s}


def test_the_waterfall_adds_up_to_the_step() -> None:
    analysis = two_steps(decodescope=with_peak(2.4e12))
    parts = parts_of(analysis)
    assert parts == {
        "limit": 20, "kernel_inefficiency": 15, "unlinked": 0, "graph_internal": 0,
        "host_wait": 10, "launch_call": 2, "kernel_floor": 0, "dependency": 0,
        "launch_latency": 8, "host_tail": 45,
    }  # fmt: skip
    assert analysis.report.observer is not None
    assert sum(parts.values()) == 100 == analysis.report.observer.profiled_step_ns
    assert analysis.report.observer.ratio == pytest.approx(100 / 90)


def test_without_a_measured_peak_the_datasheet_gives_the_limit() -> None:
    assert parts_of(two_steps(decodescope=CAPTURE))["limit"] == 10


def test_a_limit_above_busy_stays_visible_as_a_negative_part() -> None:
    parts = parts_of(two_steps(decodescope=with_peak(1e12)))
    assert (parts["limit"], parts["kernel_inefficiency"]) == (48, -13)
    assert sum(parts.values()) == 100


def test_without_bytes_or_peak_busy_is_one_part() -> None:
    assert parts_of(two_steps())["busy"] == 35
    unknown = {**CAPTURE, "device_name": "Somebody's GPU"}
    assert parts_of(two_steps(decodescope=unknown))["busy"] == 35


def test_a_step_that_the_next_one_overlaps_ends_where_that_begins() -> None:
    parts = parts_of(
        analyze(
            trace_of(
                *(span(at, at + 10, "decode_step") for at in (0, 10, 20)),
                call(1, 2, 1), op(100, 120, 1), call(3, 4, 2), op(130, 250, 2, stream=8),
                call(11, 12, 3), op(200, 240, 3), call(21, 22, 4), op(300, 301, 4),
            )
        )
    )  # fmt: skip
    assert parts["busy"] == 90
    assert (parts["host_tail"], sum(parts.values())) == (0, 100)


def test_a_step_that_the_next_one_overtakes_lasts_as_long_as_its_ops() -> None:
    analysis = analyze(
        trace_of(
            span(0, 10, "decode_step"), span(10, 20, "decode_step"), call(1, 2, 1),
            op(100, 120, 1, device=1), call(11, 12, 2), op(50, 60, 2),
        )
    )  # fmt: skip
    assert analysis.report.observer is not None
    assert analysis.report.observer.profiled_step_ns == 20 == sum(parts_of(analysis).values())


def test_without_steps_there_is_no_waterfall() -> None:
    assert analyze(trace_of(op(0, 5), op(10, 20))).report.answer.parts == ()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_waterfalls_of_any_steps_add_up(data: st.DataObject) -> None:
    events: list[Event] = []
    at, correlation = 0, 0
    for step in range(data.draw(st.integers(1, 4))):
        begin = at
        for _ in range(data.draw(st.integers(1, 4))):
            correlation += 1
            at += data.draw(st.integers(0, 9))
            events.append(call(at, at + 1, correlation))
            start = at + data.draw(st.integers(0, 60))
            stream = data.draw(st.integers(7, 8))
            length = data.draw(st.integers(0, 20))
            events.append(op(start, start + length, correlation, stream=stream))
        at += 1
        events.append(span(begin, at, f"decode_step_{step}"))
    peak = data.draw(st.floats(1e9, 1e13))
    analysis = analyze(trace_of(*events, decodescope=with_peak(peak)))
    assert analysis.report.observer is not None
    parts = analysis.report.answer.parts
    assert sum(part.ns for part in parts) == analysis.report.observer.profiled_step_ns
    assert all(part.ns >= 0 for part in parts if part.part != "kernel_inefficiency")
    steps = analysis.report.steps
    assert sum(step.gpu_ops for step in steps) == correlation
    for step in steps:
        assert step.gpu_span_ns == step.busy_ns + (step.idle_ns or 0)
