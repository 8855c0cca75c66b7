"""Interruptions in hand-made traces: each cause, and what must not be found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import InterruptionReport
from decodescope.analyzer.trace import Trace
from tests.helpers.drawn_windows import analysed, windows
from tests.helpers.kineto_events import Event, call, document, event, op, span, trace_of
from tests.helpers.planted.holds import begun_late, held_before, held_in, ran_long, with_pause
from tests.helpers.reports import analyzed

MS = 1_000_000
HOLD = 463 * MS
STEP, KERNELS = 10 * MS, 5


def steps(count: int, *, name: str = "decode_step_{}", graph: bool = False) -> list[Event]:
    """Steps of five kernels of 1.8 ms, 0.2 ms apart, each launched just before, or by a graph."""
    events: list[Event] = []
    for step in range(count):
        at = step * STEP + 1_001
        if name:
            events.append(span(at, at + 9 * MS, name.format(step)))
        if graph:
            events.append(call(at + 1_000, at + 90_000, step + 1, name="cudaGraphLaunch"))
        for kernel in range(KERNELS):
            start = at + 100_000 + kernel * 2 * MS
            number = step + 1 if graph else step * KERNELS + kernel + 1
            if not graph:
                events.append(call(start - 9_000, start - 4_000, number))
            events.append(op(start, start + 1_800_000, number, name=f"kernel{kernel}"))
    return events


def launches(trace: Trace) -> list[int]:
    return sorted({int(one) for one in trace.ops.launch})


def only(report: Report) -> InterruptionReport:
    (found,) = report.interruptions
    return found


def near(found: int, wanted: int) -> bool:
    return abs(found - wanted) <= wanted // 100


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaEventSynchronize", "wait"),
        ("hipStreamSynchronize", "wait"),
        ("cuModuleLoadDataEx", "module_loading"),
        ("hipModuleLoadData", "module_loading"),
        ("cuLibraryLoadData", "module_loading"),
        ("cudaFuncSetAttribute", "module_loading"),
        ("cudaGraphInstantiateWithFlags", "graph_upload"),
        ("hipGraphUpload", "graph_upload"),
        ("cudaMalloc", "allocation"),
        ("hipFree", "allocation"),
        ("cudaHostAlloc", "allocation"),
        (None, "host"),
    ],
)
def test_a_call_of_the_host_is_named(name: str | None, cause: str) -> None:
    trace = trace_of(*steps(5))
    clean = analyzed(trace).report
    assert clean.interruptions == ()
    report = analyzed(held_before(trace, launches(trace)[12], HOLD, name)).report
    found = only(report)
    assert (found.cause, found.call, found.step, found.device) == (cause, name, 2, 0)
    assert near(found.ns, HOLD)
    assert 23_800_000 <= found.at_ns <= 24 * MS
    assert_apart(report, clean)


def assert_apart(report: Report, clean: Report) -> None:
    """The hold moves no figure of a step."""
    answer, before = report.answer, clean.answer
    assert near(answer.step_ns or 0, before.step_ns or 0)
    assert near(kernels_ns(report), kernels_ns(clean))
    assert sum(part.ns for part in answer.parts) == answer.step_ns
    assert answer.interruptions_ns == sum(one.ns for one in report.interruptions)
    for step, other in zip(report.steps, clean.steps, strict=True):
        assert near(step.time_ns or 0, other.time_ns or 0)
    assert report.devices[0].window_ns > clean.devices[0].window_ns + HOLD // 2
    assert answer.bound == before.bound


def kernels_ns(report: Report) -> int:
    return sum(part.ns for part in report.answer.parts if part.kernel is not None)


def test_the_first_replay_and_a_later_launch_differ() -> None:
    lead = [call(0, 500, 99), op(600, 900, 99, name="lead")]
    trace = trace_of(*lead, *steps(5, graph=True))
    first, *_, last = launches(trace)[1:]
    assert only(analyzed(held_in(trace, first, HOLD)).report).cause == "first_replay"
    found = only(analyzed(held_in(trace, last, HOLD)).report)
    assert (found.cause, found.call, found.step) == ("launch", "cudaGraphLaunch", 4)
    assert "its 4 other calls" in found.evidence
    late = only(analyzed(begun_late(trace, 1, HOLD)).report)
    assert (late.cause, late.step) == ("first_replay", 0)


@pytest.mark.parametrize(
    ("gaps_us", "usual_us"),
    [((30, 10), 10), ((30, 10, 20), 20), ((40, 30, 10, 20), 20), ((50, 40, 30, 10, 20), 30)],
)
def test_what_is_usual_is_the_lower_median_of_the_other_steps(
    gaps_us: tuple[int, ...], usual_us: int
) -> None:
    """The gap before the second kernel of a step, and 20 ms of it in the last but one."""
    lengths_us = (*gaps_us[:-1], 20_000, gaps_us[-1])
    events, at = [], 1_000
    for step, gap_us in enumerate(lengths_us):
        for kernel, wait_us in ((0, 1), (1, gap_us)):
            at, number = at + wait_us * 1_000, 2 * step + kernel + 1
            events.append(call(at - 900, at - 100, number))
            events.append(op(at, at + 1_000_000, number, name=f"kernel{kernel}"))
            at += 1_000_000
        events.append(span(at - 1_900_000 - gap_us * 1_000, at - 100, f"decode_step_{step}"))
    found = only(analyzed(trace_of(*events)).report)
    assert found.step == len(lengths_us) - 2
    assert found.ns == (20_000 - usual_us) * 1_000
    assert f"{len(gaps_us)} other steps" in found.evidence


def test_what_the_device_does_is_named() -> None:
    trace = trace_of(*steps(5))
    clean = analyzed(trace).report
    report = analyzed(begun_late(trace, 12, HOLD)).report
    assert (only(report).cause, only(report).step) == ("late_start", 2)
    assert_apart(report, clean)
    report = analyzed(ran_long(trace, 12, HOLD)).report
    assert (only(report).cause, only(report).call) == ("long_op", None)
    assert "kernel2 ran for 465 ms; 1.80 ms at the same place of 4 other steps" in (
        only(report).evidence
    )
    assert_apart(report, clean)


def test_a_call_that_takes_as_long_as_a_late_start_is_its_cause() -> None:
    """The first copy under a profiler: the host waits in it, and the device for its event."""
    events = steps(1)
    events += [
        call(9 * MS + number * 10_000, 9 * MS + number * 10_000 + 2_000, 900 + number, name="copy")
        for number in range(4)
    ]
    hold_ns = 2 * STEP
    trace = trace_of(*events)
    clean = analyzed(trace).report
    late = begun_late(trace, 2, hold_ns)
    assert analyzed(late).report.answer.step_ns == (clean.answer.step_ns or 0) + hold_ns
    at_ns = int(late.calls.end_ns[launches(late)[2]])
    long = call(at_ns, at_ns + hold_ns, 990, name="copy")
    report = analyzed(begun_late(trace_of(*events, long), 2, hold_ns)).report
    assert (only(report).cause, only(report).call) == ("call", "copy")
    assert "its 4 other calls" in only(report).evidence
    assert near(report.answer.step_ns or 0, clean.answer.step_ns or 0)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Buffer Flush", "profiler"),
        ("Activity Buffer Request", "profiler"),
        ("Lazy Function Loading", "module_loading"),
        ("Command Buffer Full", "host"),
    ],
)
def test_a_pause_of_the_profiler_is_named(name: str, cause: str) -> None:
    trace = trace_of(*steps(5))
    at_call = launches(trace)[12]
    at_ns = int(trace.calls.start_ns[at_call])
    held = with_pause(held_before(trace, at_call, HOLD, None), name, at_ns, at_ns + HOLD)
    found = only(analyzed(held).report)
    assert found.cause == cause
    assert near(found.ns, HOLD)


def test_pauses_are_read_from_a_file() -> None:
    pause = event("overhead", "Buffer Flush", 5 * MS, 6 * MS, -1, 0)
    trace = read_kineto_bytes(document([*steps(1), pause]), "some.json")
    assert trace.overhead.start_ns.tolist() == [5 * MS]
    assert trace.names[int(trace.overhead.name[0])] == "Buffer Flush"


def test_what_recurs_in_every_step_is_of_the_steps() -> None:
    """A third of each step is one gap at the same place: so is decoding with that host."""
    events = [
        one
        for step in range(4)
        for at in [step * 3 * STEP + 1_001]
        for one in (
            span(at, at + 25 * MS, f"decode_step_{step}"),
            call(at, at + 5_000, 2 * step + 1),
            op(at + 9_000, at + 9 * MS, 2 * step + 1, name="a"),
            call(at + 10 * MS, at + 20 * MS, 100 + step, name="cudaStreamSynchronize"),
            call(at + 20 * MS, at + 20 * MS + 5_000, 2 * step + 2),
            op(at + 20 * MS + 9_000, at + 22 * MS, 2 * step + 2, name="b"),
        )
    ]
    assert analyzed(trace_of(*events)).report.interruptions == ()
    nameless = [one for one in events if one["cat"] != "user_annotation"]
    assert analyzed(trace_of(*nameless)).report.interruptions == ()


def test_a_host_that_often_pauses_is_of_the_steps() -> None:
    trace = trace_of(*steps(8))
    for call_index in (3, 9, 17, 26):
        trace = held_before(trace, launches(trace)[call_index], 30 * MS, None)
    assert analyzed(trace).report.interruptions == ()


def test_two_in_a_row_and_two_in_one_gap_are_told_apart() -> None:
    trace = trace_of(*steps(6))
    once = held_before(trace, launches(trace)[12], HOLD, "cudaMalloc")
    again = held_before(once, launches(once)[13], HOLD, "cuModuleLoad")
    assert [one.cause for one in analyzed(again).report.interruptions] == [
        "allocation",
        "module_loading",
    ]
    both = held_before(once, launches(once)[12], 2 * HOLD, "cuModuleLoad")
    report = analyzed(both).report
    assert [(one.cause, one.ns // MS) for one in report.interruptions] == [
        ("allocation", 463),
        ("module_loading", 926),
    ]
    assert_apart(report, analyzed(trace).report)


def test_every_step_may_be_interrupted_at_a_place_of_its_own() -> None:
    trace = trace_of(*steps(3))
    clean = analyzed(trace).report
    for call_index in (2, 6, 13):
        trace = held_before(trace, launches(trace)[call_index], HOLD, "cudaMalloc")
    report = analyzed(trace).report
    assert [one.step for one in report.interruptions] == [0, 1, 2]
    assert_apart(report, clean)


@pytest.mark.parametrize("place", range(1, 10))
def test_the_parts_are_those_of_a_step_without_interruptions(place: int) -> None:
    """With two steps only the first is followed by another, so it alone has a known time."""
    trace = trace_of(*steps(2))
    held = held_before(trace, launches(trace)[place], HOLD, "cudaMalloc")
    report = analyzed(held).report
    assert near(only(report).ns, HOLD)
    assert sum(part.ns for part in report.answer.parts) <= 11 * MS


@settings(max_examples=25)
@given(st.integers(1, 24), st.integers(3, 3_000), st.sampled_from(["cudaMalloc", None, "in"]))
def test_it_is_found_once_wherever_and_however_long(place: int, ms: int, how: str | None) -> None:
    trace = trace_of(*steps(5))
    clean = analyzed(trace).report
    at_call = launches(trace)[place]
    if how == "in":
        held = held_in(trace, at_call, ms * MS)
    else:
        held = held_before(trace, at_call, ms * MS, how)
    report = analyzed(held).report
    assert near(only(report).ns, ms * MS)
    assert only(report).step == place // KERNELS
    first = "module_loading" if place < KERNELS else "launch"
    assert only(report).cause == {"cudaMalloc": "allocation", None: "host"}.get(how, first)
    assert near(report.answer.step_ns or 0, clean.answer.step_ns or 0)
    assert kernels_ns(report) == kernels_ns(clean)


def test_without_steps_a_known_cause_is_found_and_similar_gaps_recur() -> None:
    trace = trace_of(*steps(20, name=""))
    held = held_before(trace, launches(trace)[40], HOLD, "cudaEventSynchronize")
    found = only(analyzed(held).report)
    assert (found.cause, found.step) == ("wait", None)
    assert near(found.ns, HOLD)
    unseen = only(analyzed(held_before(trace, launches(trace)[40], HOLD, None)).report)
    assert unseen.cause == "host"


def test_each_device_is_interrupted_by_itself_and_a_step_while_all_are() -> None:
    """Two devices, of which one is interrupted: the step continues on the other."""
    events = steps(4)
    kernels = [one for one in events if one["cat"] == "kernel"]
    for other in kernels:
        args = other["args"] | {"device": 1}
        events.append(other | {"args": args, "pid": 1})
    trace = trace_of(*events)
    held = held_before(trace, launches(trace)[7], HOLD, "cudaMalloc")
    report = analyzed(held).report
    assert [(one.device, one.cause) for one in report.interruptions] == [
        (0, "allocation"),
        (1, "allocation"),
    ]
    assert near(report.answer.step_ns or 0, STEP)
    assert report.answer.interruptions_ns == sum(one.ns for one in report.interruptions)


@given(windows())
def test_whatever_is_set_apart_adds_up(drawn: tuple[list, list]) -> None:
    report = analysed(*drawn).report
    answer = report.answer
    assert answer.interruptions_ns == sum(one.ns for one in report.interruptions)
    assert sum(part.ns for part in answer.parts) == answer.whole_ns
    assert all(part.ns >= 0 for part in answer.parts)
    assert all((step.time_ns or 0) >= 0 for step in report.steps)


def test_nothing_is_interrupted_without_ops_or_on_a_cpu() -> None:
    empty = analyzed(trace_of(span(0, HOLD, "decode_step_0"), call(0, HOLD, 1, name="cudaMalloc")))
    assert empty.report.interruptions == ()
    assert empty.report.answer.interruptions_ns == 0


def test_a_host_that_is_ahead_is_not_interrupted() -> None:
    """The host waits in its last call while the device works through what it launched."""
    events = steps(5, graph=True)
    waits = call(4 * STEP + 200_000, 6 * STEP, 77, name="cudaDeviceSynchronize")
    assert analyzed(trace_of(*events, waits)).report.interruptions == ()


@pytest.mark.parametrize(("every", "recurs"), [(1, True), (2, True), (10, False)])
@pytest.mark.parametrize("name", ["cudaMalloc", "cudaDeviceSynchronize", "cudaMemcpy"])
def test_a_hold_in_many_steps_belongs_to_them_wherever_it_is(
    name: str, every: int, recurs: bool
) -> None:
    """Before another kernel in each step, so that no place has it often."""
    count, kernels, hold_ns = 20, 20, 5 * MS
    events, at_ns, number = [], 1_001, 0
    for step in range(count):
        begin_ns = at_ns
        for kernel in range(kernels):
            if kernel == step and step % every == 0:
                events.append(call(at_ns, at_ns + hold_ns, name=name))
                at_ns += hold_ns
            number += 1
            events.append(call(at_ns, at_ns + 5_000, number))
            events.append(op(at_ns + 6_000, at_ns + 36_000, number, name=f"kernel{kernel}"))
            at_ns += 40_000
        events.append(span(begin_ns, at_ns - 1, f"decode_step_{step}"))
    report = analyzed(trace_of(*events)).report
    assert bool(report.interruptions) != recurs
    step_ns = kernels * 40_000 + (hold_ns if every == 1 else 0)
    if every != 2:
        assert report.answer.step_ns is not None
        assert near(report.answer.step_ns, step_ns)
