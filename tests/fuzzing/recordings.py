"""Cases of recordings: messages of odd values, frames out of place, damaged bytes."""

import copy
import gzip
import random
import struct
from functools import cache
from typing import Any

import msgspec

from decodescope.analyzer.protocol.attach_messages import (
    NoAnswer,
    ServerSample,
    Target,
    TracesOf,
    WindowTaken,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.frames import Frame, MessageFrame, TakenFrame
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.analyzer.schema.servers_report import ServerFigures
from tests.fuzzing.case import Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_events
from tests.fuzzing.traces import trace_case, window

_LENGTH = struct.Struct(">I")
_HEADER_BYTES = 6


@cache
def _recorded() -> tuple[bytes, tuple[bytes, ...]]:
    """The header of a bundled recording and some of its frames: a few messages, one window."""
    data = bundled_recordings()[1].read_bytes()
    at, frames = _HEADER_BYTES, []
    while at < len(data):
        end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        frames.append(data[at + _LENGTH.size : end])
        at = end
    windows = [frame for frame in frames if len(frame) > 10_000]
    return data[:_HEADER_BYTES], (*frames[:12], windows[0])


@cache
def _attached() -> tuple[bytes, ...]:
    """The frames of a session with two servers; the last one is a window without its traces."""
    servers = tuple(ServerFigures(name, elapsed_s=1.0, generated_per_s=9.0) for name in ("a", "b"))
    group = ServerFigures("2 servers", elapsed_s=1.0, generated_per_s=18.0, servers=servers)
    parts = (TracesOf("a", 1), TracesOf("b", 1))
    taken = WindowTaken(("a.json", "b.json"), ObserverReport("servers", "2 servers"), parts)
    frames: tuple[Frame, ...] = (
        MessageFrame(1, Target("2 servers", "a cost", "300 ms")),
        *(MessageFrame(time_ns, ServerSample(group)) for time_ns in (2, 3)),
        MessageFrame(4, NoAnswer("gone")),
        TakenFrame(5, taken, ()),
    )
    return tuple(map(msgspec.msgpack.encode, frames))


def recording_case(rng: random.Random) -> Case:
    """A command that reads a recording of damaged messages, frames or bytes."""
    header, bodies = _recorded()
    attached = rng.random() < 0.3
    frames = [msgspec.msgpack.decode(body) for body in (_attached() if attached else bodies)]
    count = rng.choice((1, 2)) if attached else 1
    windows = [gzip.compress(_window(rng), 1, mtime=0) for _ in range(count)]
    frames[-1][-1] = windows if attached else windows[0]
    if attached:
        frames[-1][2]["paths"] = frames[-1][2]["paths"][:count]
    for _ in range(rng.choice((0, 1, 3))):
        _damage(rng.choice(frames), rng)
    if rng.random() < 0.3:
        rng.shuffle(frames)
    encoded = [msgspec.msgpack.encode(frame) for frame in frames]
    data = header + b"".join(_LENGTH.pack(len(body)) + body for body in encoded)
    if rng.random() < 0.4:
        data = damage_bytes(data, rng)
    return trace_case(rng, rng.choice(("live.dsrec", "live.json")), data)


def _window(rng: random.Random) -> bytes:
    document = window(rng)
    return as_json(document, rng) if rng.random() < 0.5 else damage_events(document, rng)


def _damage(value: Any, rng: random.Random) -> None:
    """One value inside `value` replaced or taken out, at any depth."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and rng.random() < 0.8:
        _damage(value[key], rng)
    elif rng.random() < 0.2:
        del value[key]
    else:
        value[key] = _packable(copy.deepcopy(rng.choice(ODD_VALUES)))


def _packable(value: Any) -> Any:
    """msgpack holds integers of 64 bits and UTF-8."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        return 2.0**99
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
