"""Events that begin ("B") and end ("E") on their own: read as whole ones."""

from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.trace import Columns, Trace
from tests.helpers.kineto_events import Event, call, codes, event, op, span, trace_of

CATEGORIES = ("kernel", "cuda_runtime", "cpu_op", "user_annotation", "gpu_memcpy", "overhead")
SOME = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from(CATEGORIES), st.integers(0, 3)),
    max_size=40,
)


def begin(whole: Event) -> Event:
    return {key: value for key, value in whole.items() if key != "dur"} | {"ph": "B"}


def end(whole: Event, at: int, **more: Any) -> Event:
    stamp = event("", "", at, at, whole["pid"], whole["tid"])["ts"]
    return {"ph": "E", "pid": whole["pid"], "tid": whole["tid"], "ts": stamp, **more}


def same(one: Trace, other: Trace) -> bool:
    def columns(trace: Trace) -> list[Columns]:
        return [trace.ops, trace.calls, trace.cpu_ops, trace.ranges]

    return one.names == other.names and all(
        np.array_equal(getattr(mine, column.name), getattr(its, column.name))
        for mine, its in zip(columns(one), columns(other), strict=True)
        for column in fields(mine)
    )


@given(SOME, st.booleans())
def test_pairs_are_read_like_whole_events(
    moves: list[tuple[int, bool, str, int]], named: bool
) -> None:
    """Interleaved threads, nested as their stacks demand; an end may repeat the name."""
    stacks: dict[int, list[tuple[Event, int]]] = {0: [], 1: [], 2: []}
    whole, halves = [], []

    def close(thread: int, at: int) -> None:
        opened, start = stacks[thread].pop()
        args = opened["args"]
        whole.append(event(opened["cat"], opened["name"], start, at, 1, thread, **args))
        halves.append(end(opened, at, **({"name": opened["name"]} if named else {})))

    for at, (thread, opens, category, name) in enumerate(moves):
        if opens:
            one = event(category, f"{category} {name}", at, at, 1, thread, correlation=at + 1)
            stacks[thread].append((one, at))
            halves.append(begin(one))
        elif stacks[thread]:
            close(thread, at)
    left = [thread for thread, stack in stacks.items() for _ in stack]
    for at, thread in enumerate(left, len(moves)):
        close(thread, at)
    # The ends of one thread are written in order of time.
    halves.sort(key=lambda half: float(half["ts"].strip("@")))
    read, expected = trace_of(*halves), trace_of(*whole)
    assert same(read, expected)
    assert [one.message for one in read.findings] == [one.message for one in expected.findings]


@given(
    st.lists(
        st.tuples(st.sampled_from("BE"), st.integers(0, 1), st.sampled_from([None, "a", "b"])),
        max_size=30,
    )
)
def test_an_end_closes_the_last_open_event_that_it_can_mean(
    marks: list[tuple[str, int, str | None]],
) -> None:
    """Against a search of every open event, backwards."""
    events, opened, expected, orphans = [], list[tuple[int, int, str]](), Counter(), 0
    for at, (phase, thread, name) in enumerate(marks):
        one = span(at, at, name or "", tid=thread)
        if phase == "B":
            events.append(begin(one))
            opened.append((at, thread, name or "(unnamed)"))
            continue
        events.append(end(one, at, **({"name": name} if name else {})))
        for place in range(len(opened) - 1, -1, -1):
            start, where, its_name = opened[place]
            if where == thread and name in (None, its_name):
                expected[start, at, its_name] += 1
                del opened[place]
                break
        else:
            orphans += 1
    trace = trace_of(*events)
    columns = (trace.ranges.start_ns, trace.ranges.end_ns, trace.ranges.name)
    found = zip(*(column.tolist() for column in columns), strict=True)
    assert Counter((start, until, trace.names[name]) for start, until, name in found) == expected
    said = [one.message for one in trace.findings if one.code == "open_ended_events"]
    left_out = f"{len(opened):,} events begin and never end, {orphans:,} ends have no begin"
    assert [message.split(";")[0] for message in said] == [left_out] * bool(opened or orphans)


def test_a_trace_of_pairs_has_the_figures_of_whole_events() -> None:
    whole, spans = [], []
    for start in (0, 100):
        ids = (start + 1, start + 2)
        for begun, until, make in (
            (start, start + 100, lambda a, b, _: span(a, b, "decode_step")),
            (start + 1, start + 10, lambda a, b, ids: call(a, b, ids[0])),
            (start + 15, start + 20, lambda a, b, ids: call(a, b, ids[1])),
            (start + 20, start + 60, lambda a, b, ids: op(a, b, ids[0])),
            (start + 70, start + 90, lambda a, b, ids: op(a, b, ids[1])),
        ):
            whole.append(make(begun, until, ids))
            spans.append(until)
    halves = [
        half
        for one, until in zip(whole, spans, strict=True)
        for half in (begin(one), end(one, until))
    ]
    read, expected = analyze(trace_of(*halves)).report, analyze(trace_of(*whole)).report
    assert read.devices == expected.devices
    assert read.steps == expected.steps
    assert read.launches == expected.launches


def test_marks_without_a_usable_time_are_dropped_and_counted() -> None:
    one = op(0, 10)
    trace = trace_of(begin(one) | {"ts": None}, begin(one), end(one, 7), {"ph": "B"})
    assert trace.ops.end_ns.tolist() == [7]
    assert codes(trace) == {"dropped_events"}


def test_a_stack_of_many_open_events_is_searched_once() -> None:
    """Ends that match nothing, above a deep stack: quadratic search would take minutes."""
    many = 50_000
    opened = [
        {"ph": "B", "pid": 1, "tid": 1, "ts": i, "name": "a", "cat": "cpu_op"} for i in range(many)
    ]
    wrong = [{"ph": "E", "pid": 1, "tid": 1, "ts": many, "name": "b"} for _ in range(many)]
    right = [{"ph": "E", "pid": 1, "tid": 1, "ts": many + i} for i in range(many)]
    trace = trace_of(*opened, *wrong, *right)
    assert len(trace.cpu_ops) == many
    (found,) = (one for one in trace.findings if one.code == "open_ended_events")
    assert found.message.startswith("0 events begin and never end, 50,000 ends have no begin")


JUNK = st.one_of(
    st.none(), st.text(max_size=3), st.integers(-(2**70), 2**70), st.floats(), st.lists(st.none())
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.sampled_from("BEX")},
            optional={
                "cat": st.sampled_from([*CATEGORIES, "python_function", "x", 5]),
                "name": st.one_of(JUNK, st.just("nn.Module: M")),
                "pid": JUNK,
                "tid": JUNK,
                "ts": JUNK,
                "dur": JUNK,
                "args": JUNK,
            },
        ),
        max_size=12,
    )
)
def test_any_marks_give_figures_that_add_up(events: list[Event]) -> None:
    report = analyze(trace_of(*events)).report
    for device in report.devices:
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert 0 <= device.exposed_communication_ns <= device.communication_ns <= device.busy_ns
