"""Seeded damage to bytes, to JSON, and to the order and values of a trace's events."""

import copy
import json
import random
import re
from typing import Any

from tests.fuzzing.case import ODD_NUMBERS, ODD_TEXTS

Document = dict[str, Any]

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    *ODD_NUMBERS,
    *ODD_TEXTS,
    [],
    [1],
    {},
    {"a": 1},
    [[1, 2], [2, 3]],
)
_LITERALS = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"-0.0",
    b"1" * 400,
    b'""',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\u001b[31m"',
    b'"x',
    b"[]",
    b"{}",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"NaN",
)
_TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"NaN", b"1e999", b"-", b"\xff", b"\0")
_SCALAR = re.compile(rb'(?<=[:,\[])\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null)')
_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
_ARGS = (
    "correlation",
    "External id",
    "device",
    "stream",
    "graph id",
    "graph node id",
    "Input Dims",
    "Input type",
    "Input Strides",
    "Concrete Inputs",
)
_KEYS = (
    "baseTimeNanoseconds",
    "deviceProperties",
    "distributedInfo",
    "decodescope",
    "decodescope_reference",
    "decodescope_work",
    "traceEvents",
)


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


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Some of the values of a JSON text replaced, whatever they are."""
    for _ in range(rng.randint(1, 6)):
        found = _SCALAR.search(data, rng.randrange(max(len(data), 1)))
        if found is not None:
            data = data[: found.start(1)] + rng.choice(_LITERALS) + data[found.end(1) :]
    return data


def damage_events(document: Document, rng: random.Random) -> bytes:
    """Some of: events deleted, doubled, shuffled, shifted; values of odd types and sizes."""
    events = document["traceEvents"]
    for _ in range(rng.randint(1, 8)):
        rng.choice((_delete, _double, _shuffle, _shift, _reverse, _set, _set, _set, _swap))(
            events, rng
        )
    if rng.random() < 0.2:
        document = {**document, rng.choice(_KEYS): copy.deepcopy(rng.choice(ODD_VALUES))}
    return as_json(document, rng)


def as_json(value: object, rng: random.Random) -> bytes:
    """JSON as Python writes it, with NaN and lone surrogates, escaped or not."""
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


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
        value = copy.deepcopy(rng.choice(ODD_VALUES))
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
