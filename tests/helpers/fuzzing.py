"""Fuzzing traces: seeded damage to bytes, order and values, and what must hold for any trace."""

import copy
import json
import random
from typing import Any

import msgspec

from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.trace import Trace

Document = dict[str, Any]

_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 5e-324, 1e308, -1e308, float("nan"), float("inf"),
    2**31, 2**53 + 1, 2**62, 2**63, -(2**63), 2**64, 10**40, -(10**40), 10**400,
    "", "0", "-1", "7.25", "nan", "1e999", "text", "\udc80", "\x00", "9" * 5000,
    [], [1], {}, {"a": 1}, [[1, 2], [2, 3]],
)  # fmt: skip
_TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"NaN", b"1e999", b"-", b"\xff", b"\0")
_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
_ARGS = (
    "correlation", "External id", "device", "stream", "graph id", "graph node id", "Input Dims",
    "Input type", "Input Strides", "Concrete Inputs",
)  # fmt: skip
_KEYS = (
    "baseTimeNanoseconds", "deviceProperties", "distributedInfo", "decodescope",
    "decodescope_reference", "decodescope_work", "traceEvents",
)  # fmt: skip


def cut_down(document: Document, rng: random.Random, events: int = 250) -> Document:
    """The same document with a run of its events."""
    listed = document["traceEvents"]
    at = rng.randrange(max(len(listed) - events, 1))
    return {**document, "traceEvents": copy.deepcopy(listed[at : at + events])}


def damage_events(document: Document, rng: random.Random) -> bytes:
    """Some of: events deleted, doubled, shuffled, shifted; values of odd types and sizes."""
    events = document["traceEvents"]
    for _ in range(rng.randint(1, 8)):
        rng.choice((_delete, _double, _shuffle, _shift, _reverse, _set, _set, _set, _swap))(
            events, rng
        )
    if rng.random() < 0.2:
        document = {**document, rng.choice(_KEYS): copy.deepcopy(rng.choice(_ODD_VALUES))}
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some of: bytes set, cut out, doubled, put in; the end cut off."""
    mutated = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if not mutated:
            break
        at = rng.randrange(len(mutated))
        kind = rng.randrange(6)
        if kind == 0:
            mutated[at] = rng.randrange(256)
        elif kind == 1:
            mutated[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del mutated[at : at + rng.randint(1, 400)]
        elif kind == 3:
            mutated[at:at] = rng.choice(_TOKENS)
        elif kind == 4:
            mutated[at:at] = mutated[at : at + rng.randint(1, 400)]
        elif rng.random() < 0.2:
            del mutated[at:]
    return bytes(mutated)


def _some(events: list[Any], rng: random.Random) -> slice:
    at = rng.randrange(len(events) + 1)
    return slice(at, at + rng.choice((1, 1, 3, 40)))


def _delete(events: list[Any], rng: random.Random) -> None:
    del events[_some(events, rng)]


def _double(events: list[Any], rng: random.Random) -> None:
    events += copy.deepcopy(events[_some(events, rng)])


def _shuffle(events: list[Any], rng: random.Random) -> None:
    rng.shuffle(events)


def _shift(events: list[Any], rng: random.Random) -> None:
    for event in events[_some(events, rng)]:
        if isinstance(event, dict) and isinstance(event.get("ts"), int | float):
            event["ts"] += rng.choice((-1, 1)) * 10 ** rng.randint(0, 15)


def _reverse(events: list[Any], rng: random.Random) -> None:
    for event in events[_some(events, rng)]:
        if isinstance(event, dict) and isinstance(event.get("dur"), int | float):
            event["dur"] = -event["dur"]


def _set(events: list[Any], rng: random.Random) -> None:
    for event in events[_some(events, rng)]:
        value = copy.deepcopy(rng.choice(_ODD_VALUES))
        args = event.get("args") if isinstance(event, dict) else None
        if isinstance(args, dict) and rng.random() < 0.6:
            args[rng.choice(_ARGS)] = value
        elif isinstance(event, dict):
            event[rng.choice(_FIELDS)] = value


def _swap(events: list[Any], rng: random.Random) -> None:
    """One field of two events exchanged: ids that are another's, names of another kind."""
    if len(events) < 2:
        return
    one, other = rng.sample(events, 2)
    key = rng.choice(_FIELDS)
    if isinstance(one, dict) and isinstance(other, dict) and key in one and key in other:
        one[key], other[key] = other[key], one[key]


def analyzed(trace: Trace) -> Analysis:
    """Analyse it and check every sum that a report promises."""
    analysis = analyze(trace)
    report = analysis.report
    assert msgspec.json.decode(msgspec.json.encode(report))["schema_version"] == 1
    for device in report.devices:
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert 0 <= device.busy_ns <= device.window_ns
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
        waits = sum(total.total_ns for total in device.host_wait.values())
        assert waits == device.gaps["host_wait"].total_ns
        by_stream = [total.total_ns for one in device.streams for total in one.gaps.values()]
        assert not by_stream or sum(by_stream) == device.idle_ns
    for step in report.steps:
        assert sum(step.gaps.values()) == (step.idle_ns or 0)
    assert sum(device.gpu_ops for device in report.devices) == len(trace.ops)
    assert sum(report.launches.by_api.values()) == report.launches.calls
    if report.waterfall:
        assert report.observer is not None
        assert sum(part.ns for part in report.waterfall) == report.observer.profiled_step_ns
    assert all("\n" not in finding.message for finding in report.health.findings)
    return analysis
