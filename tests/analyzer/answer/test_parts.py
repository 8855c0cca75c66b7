"""One step as parts that add up to its time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze
from tests.helpers.kineto_events import Event, call, op, span, trace_of

CAPTURE = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "model": "m",
    "weights": "random",
    "variant": "eager",
    "dtype": "bf16",
    "batch": 1,
    "context": 4,
    "position": 4,
    "steps": 2,
    "bytes_per_step": 48_000,
    "unprofiled_step_ns": 90,
    "decodescope_version": "0",
}


def two_steps(**keys: object) -> Analysis:
    return analyze(
        trace_of(
            span(0, 100, "decode_step"),
            span(100, 190, "decode_step"),
            call(5, 8, 1),
            op(20, 40, 1, name="a"),
            call(50, 52, 2),
            op(60, 75, 2, name="b"),
            call(105, 108, 3),
            op(120, 150, 3, name="a"),
            call(151, 155, 4),
            op(160, 175, 4, cat="gpu_memcpy"),
            **keys,
        )
    )


def parts_of(analysis: Analysis) -> dict[str, int]:
    return {part.part: part.ns for part in analysis.report.answer.parts}


def with_peak(bytes_per_s: float) -> dict[str, object]:
    return {**CAPTURE, "measured_peak_bytes_per_s": bytes_per_s}


def test_the_parts_add_up_to_the_step() -> None:
    analysis = two_steps(decodescope=with_peak(2.4e12))
    assert parts_of(analysis) == {
        "profiler": 10,
        "host_wait": 34,
        "launch_call": 5,
        "launch_latency": 16,
        "other": 35,
    }
    answer = analysis.report.answer
    assert sum(parts_of(analysis).values()) == 100 == answer.step_ns
    assert answer.profiler_ratio == pytest.approx(100 / 90)
    assert [part.part for part in answer.parts][-1] == "profiler"
    assert answer.tokens_per_s == pytest.approx(1e9 / 90)


@pytest.mark.parametrize(
    ("keys", "limit_ns"),
    [
        ({"measured_peak_bytes_per_s": 2.4e12}, 20),
        ({}, 10),
        ({"measured_peak_bytes_per_s": 1e12}, 48),
        ({"device_name": "Somebody's GPU"}, None),
    ],
)
def test_the_limit_is_of_the_measured_peak_else_of_the_datasheets(
    keys: dict[str, object], limit_ns: int | None
) -> None:
    answer = two_steps(decodescope={**CAPTURE, **keys}).report.answer
    assert (answer.limit_ns, answer.step_ns) == (limit_ns, 100)
    assert answer.bound == ("host" if limit_ns in (None, 10, 20, 48) else "memory")


def test_a_step_that_the_next_one_overlaps_ends_where_that_begins() -> None:
    analysis = analyze(
        trace_of(
            *(span(at, at + 10, "decode_step") for at in (0, 10, 20)),
            call(1, 2, 1),
            op(100, 120, 1),
            call(3, 4, 2),
            op(130, 250, 2, stream=8),
            call(11, 12, 3),
            op(200, 240, 3),
            call(21, 22, 4),
            op(300, 301, 4),
        )
    )
    assert [step.time_ns for step in analysis.report.steps] == [100, 100, 1]
    assert parts_of(analysis) == {"other": 90, "dependency": 10}


def test_a_step_that_the_next_one_overtakes_lasts_as_long_as_its_ops() -> None:
    analysis = analyze(
        trace_of(
            span(0, 10, "decode_step"),
            span(10, 20, "decode_step"),
            call(1, 2, 1),
            op(100, 120, 1, device=1),
            call(11, 12, 2),
            op(50, 60, 2),
        )
    )
    assert [step.time_ns for step in analysis.report.steps] == [20, 10]
    assert analysis.report.answer.step_ns == sum(parts_of(analysis).values())


def test_without_steps_the_parts_are_of_the_window() -> None:
    answer = analyze(trace_of(op(0, 5), op(10, 20))).report.answer
    assert (answer.steps, answer.step, answer.step_ns, answer.whole_ns) == (0, None, None, 20)
    assert {part.part: part.ns for part in answer.parts} == {"other": 15, "unlinked": 5}


def test_time_before_the_first_op_of_a_step_belongs_to_the_step_before() -> None:
    """Three steps of 10 ns, one every 100 ns: the host is late in between."""
    events = [span(at, at + 30, "decode_step") for at in (0, 100, 200)]
    for number, at in enumerate((0, 100, 200)):
        events += [call(at, at + 2, number + 1), op(at + 5, at + 15, number + 1)]
    analysis = analyze(trace_of(*events))
    assert [step.time_ns for step in analysis.report.steps] == [100, 100, 10]
    answer = analysis.report.answer
    assert (answer.step_ns, answer.bound) == (100, "host")
    assert parts_of(analysis) == {
        "other": 10,
        "host_wait": 85,
        "launch_call": 2,
        "launch_latency": 3,
    }


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_parts_of_any_steps_add_up(data: st.DataObject) -> None:
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
            length = data.draw(st.integers(1, 20))
            events.append(op(start, start + length, correlation, stream=stream))
        at += 1
        events.append(span(begin, at, f"decode_step_{step}"))
    peak = data.draw(st.floats(1e9, 1e13))
    analysis = analyze(trace_of(*events, decodescope=with_peak(peak)))
    answer = analysis.report.answer
    assert sum(part.ns for part in answer.parts) == answer.step_ns == answer.whole_ns
    assert all(part.ns >= 0 for part in answer.parts)
    steps = analysis.report.steps
    assert sum(step.gpu_ops for step in steps) == correlation
    for step in steps:
        assert step.gpu_span_ns == step.busy_ns + (step.idle_ns or 0)
    starts_ns = analysis.steps.span.start_ns
    for number, after in enumerate(analysis.steps.following.tolist()):
        until_ns = starts_ns[after] if after >= 0 else analysis.steps.span.end_ns[number]
        assert analysis.steps.time_ns[number] == until_ns - starts_ns[number]
