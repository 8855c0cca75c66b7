"""Cases of recordings: messages of odd values, frames out of place, damaged bytes, frames and
checksums that lie."""

import copy
import gzip
import random
import struct
import zlib
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
from decodescope.analyzer.protocol.messages import TraceReady
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.frames import (
    MAGIC,
    VERSION,
    Frame,
    MessageFrame,
    TakenFrame,
    WindowFrame,
)
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from tests.fuzzing.case import Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_events
from tests.fuzzing.traces import trace_case, window

_LENGTH = struct.Struct(">I")
_LENGTHS = (0, 1, 5, 1 << 16, (64 << 20) + 1, (1 << 32) - 1)


@cache
def _recorded() -> tuple[bytes, ...]:
    """Some frames of a bundled recording: a few messages, then one window."""
    recording = read_recording(bundled_recordings()[1])
    frames = [
        MessageFrame(one.t_ns, one.message)
        for one in recording.events
        if not isinstance(one.message, TraceReady)
    ]
    window = recording.windows[0]
    assert isinstance(window.message, TraceReady)
    (packed,) = recording.packed_traces(window)
    message = msgspec.structs.replace(window.message, others=("rank1.json",))
    last = WindowFrame(window.t_ns, message, packed, (packed,))
    return (*map(msgspec.msgpack.encode, frames[:12]), msgspec.msgpack.encode(last))


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
    attached = rng.random() < 0.3
    frames = [msgspec.msgpack.decode(body) for body in (_attached() if attached else _recorded())]
    count = rng.choice((1, 2)) if attached else 1
    windows = [gzip.compress(_window(rng), 1, mtime=0) for _ in range(count)]
    frames[-1][-1] = windows if attached else windows[0]
    if attached:
        frames[-1][2]["paths"] = frames[-1][2]["paths"][:count]
    for _ in range(rng.choice((0, 1, 3))):
        _damage(rng.choice(frames), rng)
    if rng.random() < 0.3:
        rng.shuffle(frames)
    version = rng.choice((1, 1, VERSION, VERSION, VERSION, VERSION + 1))
    encoded = [msgspec.msgpack.encode(frame) for frame in frames]
    data = MAGIC + bytes([version])
    data += b"".join(_framed(body, version, rng) for body in encoded)
    if rng.random() < 0.4:
        data = damage_bytes(data, rng)
    name = rng.choice(("live.dsrec", "live.json"))
    if rng.random() < 0.15:
        return Case(("open", name, "--once", "--size", "80x24"), {name: data})
    return trace_case(rng, name, data)


def _framed(body: bytes, version: int, rng: random.Random) -> bytes:
    """A frame whose length or checksum is, now and then, another one."""
    length = _LENGTH.pack(len(body) if rng.random() < 0.98 else rng.choice(_LENGTHS))
    if version == 1:
        return length + body
    checksum = zlib.crc32(length + body) ^ (rng.random() < 0.02)
    return length + _LENGTH.pack(checksum) + body


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
