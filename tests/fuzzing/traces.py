"""Cases of Kineto traces: events of real windows, events made up, damaged in value or in bytes."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from tests.fuzzing.case import ODD_TEXTS, Case, weighted
from tests.fuzzing.damage import Document, as_json, damage_bytes, damage_events, damage_json
from tests.helpers.foreign.rocprof_files import Process
from tests.helpers.foreign.rocprof_files import document as rocprof_document
from tests.helpers.kineto_events import DATA

_COMMANDS = {"json": 45, "table": 20, "csv": 5, "html": 3, "diff": 8, "ranks": 7, "export": 12}
_KERNELS = (
    "void cutlass::Kernel2<sm90_gemm>(Params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)",
    "triton_poi_fused_add_0",
    "Memcpy DtoD (Device -> Device)",
    "ncclKernel_SendRecv",
    "kernel",
)
_CALLS = (
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cuLaunchKernelEx",
    "hipLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMalloc",
    "cudaStreamWaitEvent",
)


@dataclass(frozen=True, slots=True)
class _Seed:
    """A trace's keys, and its events one by one as JSON."""

    keys: Document
    events: tuple[bytes, ...]


@cache
def _seeds() -> tuple[_Seed, ...]:
    recorded = [gzip.decompress(path.read_bytes()) for path in sorted(DATA.glob("*.json.gz"))]
    recorded += [
        gzip.decompress(packed)
        for path in bundled_recordings()
        for packed in read_recording(path).last_packed_traces()
    ]
    seeds = []
    for data in recorded:
        document = json.loads(data)
        if "traceEvents" in document:
            events = tuple(msgspec.json.encode(event) for event in document.pop("traceEvents"))
            seeds.append(_Seed(document, events))
    return tuple(seeds)


def window(rng: random.Random) -> Document:
    """Some successive events of a recorded trace, or made-up ones."""
    if rng.random() < 0.3:
        return _made_up(rng)
    seed = rng.choice(_seeds())
    count = rng.choice((3, 30, 250))
    at = rng.randrange(max(len(seed.events) - count, 1))
    events = b"[" + b",".join(seed.events[at : at + count]) + b"]"
    return {**seed.keys, "traceEvents": msgspec.json.decode(events)}


def event_case(rng: random.Random) -> Case:
    """Events of odd order and values; some traces are whole."""
    return trace_case(rng, "trace.json", _events(rng), lambda: _events(rng))


def _events(rng: random.Random) -> bytes:
    document = window(rng)
    return as_json(document, rng) if rng.random() < 0.15 else damage_events(document, rng)


def byte_case(rng: random.Random) -> Case:
    """Bytes that are JSON no more, or another document; of a compressed file too."""
    document = window(rng)
    data = (
        damage_json(as_json(document, rng), rng) if rng.random() < 0.5 else as_json(document, rng)
    )
    name = "trace.json"
    if rng.random() < 0.2:
        data, name = gzip.compress(data, 1, mtime=0), rng.choice(("trace.json.gz", name))
    return trace_case(rng, name, damage_bytes(data, rng), lambda: as_json(document, rng))


def rocprof_case(rng: random.Random) -> Case:
    """Documents of rocprofv3, damaged in value or in bytes."""
    one = Process(gpus=rng.choice((1, 2)), streams=rng.random() < 0.7)
    at = 0
    for number in range(1, rng.choice((2, 12, 60))):
        at += rng.choice((0, 5, 40, 10**6))
        one.call(at, at + 6, number, name=rng.choice(("hipLaunchKernel", "hipGraphLaunch")))
        one.kernel(at + 9, at + 9 + rng.choice((0, 3, 50)), number, stream=rng.choice((5, 6)))
        if rng.random() < 0.2:
            one.copy(at, at + 2, number)
        if rng.random() < 0.3:
            one.marker(
                at, at + rng.choice((0, 8, 90)), 1000 + number, rng.choice(("layer", "s", ""))
            )
    data = rocprof_document(*[one] * rng.choice((1, 1, 1, 2)))
    for damage in (damage_json, damage_json, damage_bytes):
        if rng.random() < 0.3:
            data = damage(data, rng)
    return trace_case(rng, "results.json", data)


def trace_case(
    rng: random.Random, name: str, data: bytes, other: Callable[[], bytes] | None = None
) -> Case:
    """A command that reads the trace `data`; where it reads two, also what `other` makes."""
    files = {name: data}
    command = weighted(rng, _COMMANDS)
    by: tuple[str, ...] = ()
    if command == "csv":
        by = ("--by", rng.choice(("kernel", "range", "gap")))
    elif command == "table":
        by = rng.choice(((), ("--show", "all"), ("--show", "gaps,ranges")))
    if command in ("diff", "ranks"):
        files["other.json"] = data if other is None else other()
        names = rng.sample(list(files), 2)
        if command == "ranks":
            return Case(("analyze", *names, rng.choice(("--json", "--show=all"))), files)
        as_json = rng.choice(((), ("--json",)))
        if rng.random() < 0.2:
            return Case(("diff", *names, *as_json, "--out", "out"), files, ("out",))
        return Case(("diff", *names, *as_json), files)
    if command == "export":
        target = rng.choice(("chrome", "chrome", "chrome", "csv"))
        output = {"csv": "out.csv", "chrome": rng.choice(("out.json", "out.json.gz"))}[target]
        return Case(("export", name, "--to", target, "-o", output), files, (output,))
    if command == "json":
        return Case(("analyze", name, "--json"), files)
    form = () if command == "table" else ("--format", command)
    return Case(("analyze", name, *form, *by), files)


def _made_up(rng: random.Random) -> Document:
    """Calls, ops on several devices and streams that overlap, ranges; times in microseconds."""
    events: list[Any] = []
    at = rng.choice((0.0, 1e6, 1.7e15))
    for correlation in range(1, rng.choice((3, 20, 80))):
        at += rng.choice((0.0, 0.001, 1.0, 15.5, 1e3))
        length, delay = rng.choice((0.0, 0.5, 3.25, 200.0)), rng.choice((-5.0, 0.0, 2.0, 1e4))
        name = rng.choice((*_CALLS, rng.choice(ODD_TEXTS)))
        events.append(_event("cuda_runtime", name, 7, rng.choice((1, 2)), at, length, correlation))
        if rng.random() < 0.3:
            span = rng.choice(("decode_step", "ProfilerStep#1", "layer.0", rng.choice(ODD_TEXTS)))
            events.append(_event("user_annotation", span, 7, 1, at - 1, rng.choice((0, 9, 500)), 0))
        for _ in range(rng.choice((0, 1, 1, 1, 3))):
            kind = rng.choice(("kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset"))
            name = rng.choice((*_KERNELS, rng.choice(ODD_TEXTS)))
            device, stream = rng.choice((0, 0, 0, 1, 3)), rng.choice((7, 7, 20))
            start = at + length + delay + rng.choice((0.0, 0.0, 4.0))
            found = _event(kind, name, device, stream, start, rng.choice((0, 2, 30)), correlation)
            found["args"] |= {"device": device, "stream": stream}
            events.append(found)
    if rng.random() < 0.2:
        events = [half for event in events for half in _begin_and_end(event)]
    keys: Document = {"schemaVersion": 1}
    if rng.random() < 0.3:
        keys["distributedInfo"] = {"rank": rng.choice((0, 1, 3)), "world_size": 4}
        keys["baseTimeNanoseconds"] = rng.choice((0, 10**18, 10**18 + 7, 10**400))
    return {**keys, "traceEvents": events}


def _event(
    category: str, name: str, process: int, thread: int, at: float, length: float, correlation: int
) -> Document:
    args = {"correlation": correlation} if correlation else {}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": at,
        "dur": length,
        "args": args,
    }


def _begin_and_end(event: Document) -> tuple[Document, Document]:
    end = {**event, "ph": "E", "ts": event["ts"] + event["dur"]}
    return {**event, "ph": "B"}, end
