"""The host's activity while it was late, against a reference that looks at every nanosecond."""

import random
from collections import Counter

import numpy as np
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.answer.host_frames import MOST_STEPS, host_frames
from decodescope.analyzer.timing.gaps import HOST_WAIT, LAUNCH_CALL, LAUNCH_LATENCY
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.step_kinds import main_kind_steps
from decodescope.analyzer.timing.timeline import Timeline, find_timeline
from decodescope.analyzer.trace import HostEvents, Int64s, Trace
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of

MODEL = "vllm/model_executor/models/llama.py(374): forward"
Row = tuple[str | None, str | None, str | None]


def frame(start: int, end: int, name: str = MODEL, *, tid: int = 1, pid: int = PID) -> Event:
    return event("python_function", name, start, end, pid, tid)


def operator(start: int, end: int, name: str, *, tid: int = 1) -> Event:
    return event("cpu_op", name, start, end, PID, tid)


def two_steps(*more: Event) -> Trace:
    """Two steps, 10 µs apart: each has two kernels of 1 µs, the second launched 4 µs later."""
    events: list[Event] = []
    for at in (0, 10_000):
        events.append(span(at, at + 9_000, f"decode_step_{at // 10_000}"))
        for place, start in enumerate((at, at + 4_000)):
            number = at + place + 1
            events.append(call(start, start + 100, number))
            events.append(op(start + 200, start + 1_200, number))
    return trace_of(*events, *more)


def rows_of(trace: Trace) -> dict[Row, int]:
    timeline = find_timeline(trace)
    steps = main_kind_steps(timeline.steps, timeline.step_annotations)
    return {(row.frame, row.operator, row.call): row.ns for row in host_frames(timeline, steps, ())}


def test_late_time_goes_to_the_innermost_frame_operator_and_call() -> None:
    inner = "/usr/lib/python3.12/site-packages/vllm/core.py(410): step"
    trace = two_steps(
        frame(0, 30_000),
        frame(2_000, 3_000, inner),
        frame(2_000, 2_900, "torch/nn/modules/module.py(1751): _call_impl"),
        frame(2_100, 2_200, "<built-in method item of Tensor object at 0x7f00>"),
        operator(2_500, 3_500, "aten::mm"),
        operator(2_600, 2_700, "aten::empty"),
        call(1_500, 1_800, 900, name="cudaMalloc"),
        frame(0, 30_000, "core.py(1): other_thread", tid=2),
    )
    # Late are [1,200, 4,200) and [5,200, 10,200) of the first step, [11,200, 14,200) of the last
    # one: of each of the three, 100 ns inside the launch call and 100 ns behind it.
    assert rows_of(trace) == {
        (MODEL, None, None): (800 - 300 + 500 + 100 + 4_800 + 100 + 2_800 + 100) // 2,
        ("vllm/core.py(410): step", None, None): 500 // 2,
        (MODEL, "aten::mm", None): 500 // 2,
        ("vllm/core.py(410): step", "aten::mm", None): 400 // 2,
        (MODEL, None, "cudaLaunchKernel"): 300 // 2,
    }


def test_the_rows_add_up_to_the_late_parts_of_the_answer() -> None:
    report = analyze(two_steps(frame(0, 30_000))).report
    timeline = find_timeline(two_steps(frame(0, 30_000)))
    late = [
        part.ns
        for part in report.answer.parts
        if part.part in ("host_wait", "launch_call", "launch_latency")
    ]
    first = np.array([report.answer.step])
    assert sum(row.ns for row in host_frames(timeline, first, ())) == sum(late) > 0
    assert sum(row.ns for row in report.answer.host) > 0


def test_interruptions_count_nowhere() -> None:
    timeline = find_timeline(two_steps())
    steps = np.array([0])
    whole = sum(row.ns for row in host_frames(timeline, steps, ()))
    assert whole == 3_000 + 5_000
    pause = Interruption(0, 2_000, 3_500, "call", "planted", call=-1, op=-1)
    assert sum(row.ns for row in host_frames(timeline, steps, (pause,))) == whole - 1_500


def test_without_launches_or_steps_there_is_no_row() -> None:
    empty = find_timeline(trace_of())
    assert host_frames(empty, np.zeros(0, dtype=np.int64), ()) == ()
    unlinked = find_timeline(trace_of(span(0, 99, "decode_step_0"), op(5, 9), op(20, 30)))
    assert (
        host_frames(unlinked, main_kind_steps(unlinked.steps, unlinked.step_annotations), ()) == ()
    )


def nested(numbers: random.Random, start: int, end: int, deep: int) -> list[tuple[int, int]]:
    """Random intervals between two times, in each other or one after another."""
    at, found = start, []
    while at < end:
        begin = numbers.randint(at, end)
        until = numbers.randint(begin, end)
        found.append((begin, until))
        if deep and until - begin > 1:
            found += nested(numbers, begin, until, deep - 1)
        at = until + 1
    return found


def _reference(trace: Trace, timeline: Timeline, steps: Int64s) -> Counter[Row]:
    """One nanosecond at a time: the names of the open events of the launching thread."""

    def name(events: HostEvents, at: int, row: int, place: int, frames: bool) -> str | None:
        is_open = [
            other
            for other in range(len(events))
            if events.start_ns[other] <= at < events.end_ns[other]
            and events.tid[other] == trace.calls.tid[row]
            and not (frames and "<" in trace.names[events.name[other]])
        ]
        return trace.names[events.name[is_open[place]]] if is_open else None

    found: Counter[Row] = Counter()
    parts, gaps = timeline.parts, timeline.gaps
    for part in range(len(parts)):
        if parts.kind[part] not in (HOST_WAIT, LAUNCH_CALL, LAUNCH_LATENCY):
            continue
        row = int(gaps.call[parts.gap[part]])
        for at in range(int(parts.start_ns[part]), int(parts.end_ns[part])):
            for step in steps[
                timeline.steps.device[steps] == gaps.device[parts.gap[part]]
            ].tolist():
                begin = timeline.steps.span.start_ns[step]
                if begin <= at < begin + timeline.steps.time_ns[step]:
                    found[
                        name(trace.frames, at, row, -1, True),
                        name(trace.cpu_ops, at, row, -1, False),
                        name(trace.calls, at, row, 0, False),
                    ] += 1
    return found


@pytest.mark.parametrize("seed", range(25))
def test_random_nests_against_every_nanosecond(seed: int) -> None:
    numbers = random.Random(seed)
    events: list[Event] = []
    for tid in (1, 2):
        for step in range(3):
            events.append(span(200 * step, 200 * step + 190, f"decode_step_{step}", tid=tid))
        for index, at in enumerate(sorted(numbers.sample(range(590), 15))):
            number = 100 * tid + index
            begin = at + numbers.randint(0, 20)
            events.append(call(at, at + numbers.randint(1, 6), number, tid=tid))
            events.append(op(begin, begin + numbers.randint(1, 9), number, device=tid))
        for start, end in nested(numbers, 0, 600, 3):
            names = ("a.py(1): f", "b.py(2): g", "c.py(3): h", "<built-in function len>")
            events.append(frame(start, end, numbers.choice(names), tid=tid))
        for start, end in nested(numbers, 0, 600, 1):
            events.append(operator(start, end, numbers.choice(("mm", "add")), tid=tid))
    trace = trace_of(*events)
    timeline = find_timeline(trace)
    steps = main_kind_steps(timeline.steps, timeline.step_annotations)
    steps = steps[timeline.steps.gpu_ops[steps] > 0]
    expected = _reference(trace, timeline, steps)
    host_rows = host_frames(timeline, steps, ())
    most = sorted((round(ns / len(steps)) for ns in expected.values()), reverse=True)
    assert [row.ns for row in host_rows] == most[:5]
    for row in host_rows:
        ns = expected[row.frame, row.operator, row.call]
        assert row.ns == round(ns / len(steps))


def test_many_steps_are_sampled_evenly() -> None:
    events: list[Event] = []
    for step in range(100):
        at = 10_000 * step
        events.append(span(at, at + 9_000, f"decode_step_{step}"))
        events.append(call(at, at + 100, step + 1))
        events.append(op(at + 200, at + 1_200 + step, step + 1))
    timeline = find_timeline(trace_of(*events))
    (row, *_) = host_frames(
        timeline, main_kind_steps(timeline.steps, timeline.step_annotations), ()
    )
    chosen = np.linspace(0, 99, MOST_STEPS).astype(np.int64)
    late = np.where(chosen < 99, 10_000 - 1_000 - chosen - 100, 0)
    assert row.ns == round(late.sum() / MOST_STEPS)
