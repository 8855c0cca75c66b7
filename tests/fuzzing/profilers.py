"""Cases of Proton's trees and traces, and of what is packed with gzip or zstd."""

import gzip
import json
import random
import sys
from contextlib import suppress

import msgspec

from tests.fuzzing.case import ODD_NUMBERS, ODD_TEXTS, Case
from tests.fuzzing.damage import as_json, damage_bytes, damage_json
from tests.fuzzing.traces import trace_case, window
from tests.helpers.foreign.proton_files import Node, event, kernel, scope, trace, tree

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_NAMES = ("gemm", "norm", "<captured_at>", "__proton_launch_metadata", "a/b@c", "é")


def proton_case(rng: random.Random) -> Case:
    """A tree or a trace, damaged in value, in structure or in bytes."""
    if rng.random() < 0.4:
        return trace_case(rng, "proton.chrome_trace", _damaged(rng, _trace(rng)))
    nodes = tree(*(_node(rng, 4) for _ in range(rng.randrange(4))))
    data = json.dumps(nodes, indent=rng.choice((None, 4))).encode()
    if rng.random() < 0.3:
        first = {key: nodes[0][key] for key in ("frame", "metrics", "children")}
        # MessagePack has fewer numbers and texts than JSON.
        with suppress(OverflowError, UnicodeEncodeError):
            data = damage_bytes(msgspec.msgpack.encode([first, nodes[1]]), rng)
            return trace_case(rng, "proton.hatchet", data)
    return trace_case(rng, "proton.hatchet", _damaged(rng, data))


def packed_case(rng: random.Random) -> Case:
    """Members of gzip and zstd, damaged outside and inside, and bytes between and behind them."""
    data = as_json(window(rng), rng)
    if rng.random() < 0.3:
        data = damage_json(data, rng)
    packed = bytearray()
    pack = rng.choice((lambda part: gzip.compress(part, 1, mtime=0), zstd.compress))
    while data and len(packed) < 1 << 20:
        at = rng.choice((len(data), len(data) // 2, 1, 0)) or len(data)
        packed += pack(data[:at])
        data = data[at:]
        if rng.random() < 0.1:
            packed += rng.choice((b"", b"\0" * 9, b"junk", pack(b""), b"\x50\x2a\x4d\x18\1\0\0\0x"))
    damaged = damage_bytes(bytes(packed), rng) if rng.random() < 0.5 else bytes(packed)
    return trace_case(rng, rng.choice(("trace.json.zst", "trace.json.gz", "trace")), damaged)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    for damage in (damage_json, damage_json, damage_bytes):
        if rng.random() < 0.35:
            data = damage(data, rng)
    return data


def _node(rng: random.Random, depth: int) -> Node:
    if depth and rng.random() < 0.6:
        children = (_node(rng, depth - 1) for _ in range(rng.randrange(4)))
        return scope(rng.choice((*_NAMES, *ODD_TEXTS)), *children)
    numbers = [rng.choice((rng.randrange(10**6), rng.choice(ODD_NUMBERS))) for _ in range(2)]
    # JSON has no such numbers.
    count, time_ns = (
        0 if number != number or abs(number) > 1e300 else number for number in numbers
    )
    return kernel(rng.choice(_NAMES), count, time_ns, rng.choice(("0", "1", "")))


def _trace(rng: random.Random) -> bytes:
    streams = []
    for stream in range(rng.randrange(1, 4)):
        at, events = 0, []
        for _ in range(rng.choice((1, 5, 40))):
            at += rng.choice((0, 30, 10**6))
            category, lane = rng.choice(
                (
                    ("kernel", 200_000),
                    ("kernel", 0),
                    ("scope", 7),
                    ("metric", 7),
                    ("scope", 100_000),
                )
            )
            events.append(event(rng.choice(_NAMES), at, at + 25, lane + stream, category))
        streams.append(events)
    return trace(*streams)
