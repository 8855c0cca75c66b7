"""Hand-made Kineto events, in nanoseconds, for tests."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.trace import Trace

DATA = Path(__file__).resolve().parent.parent / "data"
# Archives of JSON there that hold something else.
NO_TRACES = {"decode_ops.json.gz", "h200_compiled_code.json.gz"}
RECORDED = gzip.decompress((DATA / "cpu_two_blocks.json.gz").read_bytes())
PID = 4242
# Name, start and end in one step: 620 ns busy, durations of 1,210 ns, two at once during 570 ns.
PRELAUNCHED = (
    ("gemv", 100, 400),
    ("attention", 120, 450),
    ("gemv", 410, 700),
    ("norm", 430, 720),
)

Event = dict[str, Any]


def microseconds(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def event(cat: str, name: str, start: int, end: int, pid: Any, tid: Any, **args: Any) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": f"@{microseconds(start)}@",
        "dur": f"@{microseconds(end - start)}@",
        "args": {
            key.replace("_", " ") if key.startswith("graph") else key: value
            for key, value in args.items()
        },
    }


def op(
    start: int,
    end: int,
    correlation: int | None = None,
    *,
    name: str = "kernel",
    device: int = 0,
    stream: int = 7,
    cat: str = "kernel",
    **more: Any,
) -> Event:
    args = {"device": device, "stream": stream, **more}
    if correlation is not None:
        args["correlation"] = correlation
    return event(cat, name, start, end, device, stream, **args)


def call(
    start: int, end: int, correlation: int = 0, *, name: str = "cudaLaunchKernel", tid: int = 1
) -> Event:
    return event("cuda_runtime", name, start, end, PID, tid, correlation=correlation)


def span(start: int, end: int, name: str, *, tid: int = 1, pid: int = PID) -> Event:
    return event("user_annotation", name, start, end, pid, tid)


def document(events: list[Event], **keys: Any) -> bytes:
    text = json.dumps({"schemaVersion": 1, **keys, "traceEvents": events})
    return re.sub(r'"@(-?\d+\.\d{3})@"', r"\1", text).encode()


def trace_of(*events: Event, **keys: Any) -> Trace:
    return read_kineto_bytes(document(list(events), **keys), "hand-made.json")


def codes(trace: Trace) -> set[str]:
    return {finding.code for finding in trace.findings}


def read(text: str | bytes) -> Trace:
    return read_kineto_bytes(text.encode() if isinstance(text, str) else text, "some.json")


def prelaunched(steps: int = 1) -> list[Event]:
    """Graph replays of `PRELAUNCHED`, 1 µs apart, as programmatic dependent launch makes them."""
    events: list[Event] = []
    for step in range(steps):
        at, correlation = 1_000 * step, step + 1
        events.append(span(at, at + 60, f"decode_step_{step}"))
        events.append(call(at + 10, at + 50, correlation, name="cudaGraphLaunch"))
        for name, start, end in PRELAUNCHED:
            events.append(op(at + start, at + end, correlation, name=name, **{"graph id": 1}))
    return events
