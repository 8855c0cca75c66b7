"""Idle time of streams and steps adds up and has the classes of a slow reference."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.report import GAP_CLASSES
from tests.helpers.drawn_windows import US, Call, Op, analysed, windows
from tests.helpers.kineto_events import call, op, span, trace_of
from tests.helpers.slow_gaps import slow_gaps


def covered_ns(ops: list[Op], start: int, end: int) -> int:
    """Time in which any op ran, by looking at every microsecond."""
    return US * sum(any(o.start <= at < o.end for o in ops) for at in range(start, end, US))


@given(windows())
@settings(max_examples=50, deadline=None)
def test_gaps_of_streams_add_up_to_those_of_their_device(
    window: tuple[list[Op], list[Call]],
) -> None:
    ops, calls = window
    for device in analysed(ops, calls).report.devices:
        assert isinstance(device.device, int)
        mine = [o for o in ops if o.device == device.device]
        assert [s.stream for s in device.streams] == sorted({o.stream for o in mine})
        for name in GAP_CLASSES:
            parts = [stream.gaps[name] for stream in device.streams]
            total = device.gaps[name]
            assert sum(part.total_ns for part in parts) == total.total_ns
            assert sum(part.count for part in parts) == total.count
            assert max(part.max_ns for part in parts) == total.max_ns
            assert sum(count for _, count in total.histogram) == total.count
        gaps = slow_gaps(ops, calls, {device.device})
        for stream in device.streams:
            own = [o for o in mine if o.stream == stream.stream]
            assert stream.gpu_ops == len(own)
            assert stream.busy_ns == covered_ns(own, 0, 300 * US)
            ended = [gap for gap in gaps if gap.next.stream == stream.stream]
            assert stream.all_gaps.count == len(ended)
            assert stream.all_gaps.total_ns == sum(gap.length for gap in ended)
            parts_ns = sum(total.total_ns for total in stream.gaps.values())
            assert parts_ns == stream.all_gaps.total_ns
            waits = stream.gaps["host_wait"]
            assert sum(part.total_ns for part in stream.host_wait.values()) == waits.total_ns
        assert device.overlap_ns == sum(stream.overlap_ns for stream in device.streams)


@given(windows(), st.lists(st.integers(0, 160), min_size=2, max_size=5, unique=True))
@settings(max_examples=75, deadline=None)
def test_idle_of_a_step_has_classes_that_add_up_on_any_number_of_devices(
    window: tuple[list[Op], list[Call]], edges: list[int]
) -> None:
    ops, calls = window
    edges = sorted(edge * US for edge in edges)
    markers = list(itertools.pairwise(edges))
    spans = [span(start, end, f"decode_step_{i}") for i, (start, end) in enumerate(markers)]
    called = {c.correlation: c.start for c in calls}
    for step, (start, end) in zip(analysed(ops, calls, *spans).report.steps, markers, strict=True):
        own = [o for o in ops if start <= called.get(o.correlation, -1) < end]
        if not own:
            assert (step.idle_ns, step.gaps) == (None, {})
            continue
        begin, last = min(o.start for o in own), max(o.end for o in own)
        devices = {o.device for o in own}
        together = [o for o in ops if o.device in devices]
        assert step.busy_ns == covered_ns(together, begin, last)
        assert step.idle_ns == last - begin - step.busy_ns == sum(step.gaps.values())
        expected: dict[str, int] = {}
        for gap in slow_gaps(ops, calls, devices):
            if begin <= gap.prev.end and gap.next.start <= last:
                for kind, ns in gap.parts.items():
                    expected[kind] = expected.get(kind, 0) + ns
        assert step.gaps == expected


def test_idle_between_two_devices_of_one_step_waits_for_the_other_one() -> None:
    report = analyze(
        trace_of(
            span(0, 9, "decode_step"),
            call(1, 2, 1),
            call(3, 4, 2),
            op(10, 20, 1, device=0),
            op(50, 60, 2, device=1),
        )
    ).report
    assert [device.idle_ns for device in report.devices] == [0, 0]
    (step,) = report.steps
    assert (step.busy_ns, step.idle_ns, step.gaps) == (20, 30, {"dependency": 30})
    assert sum(part.ns for part in report.answer.parts) == 50


def test_a_longest_gap_names_its_stream_step_range_and_what_the_host_did() -> None:
    report = analyze(
        trace_of(
            span(0, 1000, "decode_step_0"),
            span(100, 900, "layer.3"),
            call(1, 2, 1),
            op(3, 10, 1, stream=5),
            call(200, 600, 9, name="cudaStreamSynchronize"),
            call(700, 702, 2),
            op(710, 720, 2, stream=6),
        )
    ).report
    (gap,) = report.largest_gaps
    assert (gap.stream, gap.step, gap.range) == (6, 0, "decode_step/layer.3")
    assert gap.host is not None
    assert (gap.host.range, gap.host.call) == ("decode_step/layer.3", "cudaStreamSynchronize")
    assert gap.host.operator is None


@pytest.mark.parametrize("launched", [True, False])
def test_a_gap_without_its_call_shows_the_thread_that_launched_most(launched: bool) -> None:
    calls = [call(1, 2, 1, tid=4), call(2, 3, 2, tid=4), call(5, 6, 3, tid=1)]
    report = analyze(
        trace_of(
            *(calls if launched else []),
            span(0, 99, "wrong", tid=1),
            span(0, 99, "right", tid=4),
            op(10, 11, 1),
            op(11, 12, 2),
            op(12, 13, 3),
            op(80, 90),
        )
    ).report
    host = report.largest_gaps[0].host
    assert (host.range if host else None) == ("right" if launched else None)
