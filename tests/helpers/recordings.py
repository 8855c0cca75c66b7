"""Recordings of runs that never were."""

import json
from contextlib import closing
from pathlib import Path

from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    Hello,
    Stats,
    TraceReady,
    VariantInfo,
)
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.schema.report import CaptureInfo

KINETO = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 1_000,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 1.0,
            "dur": 2.0,
            "args": {"correlation": 7},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemv",
            "pid": 0,
            "tid": 7,
            "ts": 5.0,
            "dur": 3.5,
            "args": {"correlation": 7, "device": 0, "stream": 7},
        },
    ],
}


class Clock:
    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        return self.ns


def hello(protocol: int = PROTOCOL_VERSION) -> Hello:
    return Hello(
        protocol,
        1,
        "cuda",
        "H200",
        "m",
        "random",
        "bf16",
        1,
        8,
        9,
        (VariantInfo("eager", "as is"),),
        None,
        4.8e12,
        {"torch": "2.13", "cores": 2},
    )


def stats(seq: int) -> Stats:
    return Stats(seq, 0, "eager", seq, 10, 1, 5, 100.5, 10, 20, 30, "text")


def capture(variant: str = "eager") -> CaptureInfo:
    return CaptureInfo("cuda", "H200", "m", "random", variant, "bf16", 1, 8, 9, 4, 99, None, "0")


def window(folder: Path, number: int, variant: str = "eager", requested: bool = False):
    path = folder / f"window-{number:04d}.json"
    path.write_text(json.dumps(KINETO | {"number": number}))
    return TraceReady(str(path), capture(variant), requested)


def record(path: Path, messages, interval_ns: int = 300_000_000, **options) -> Path:
    clock = Clock()
    with closing(RecordingWriter(path, clock_ns=clock, **options)) as writer:
        for message in messages:
            clock.ns += interval_ns
            writer.write(message)
    return path
