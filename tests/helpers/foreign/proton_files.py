"""Trees and traces as Triton's Proton writes them, with the given rows only."""

import json
from collections.abc import Sequence
from typing import Any

Node = dict[str, Any]


def scope(name: str, *children: Node, **metrics: float) -> Node:
    frame = {"name": name, "type": "function"}
    return {"children": list(children), "frame": frame, "metrics": metrics}


def kernel(name: str, count: object, time_ns: object, device: str = "0") -> Node:
    metrics = {"count": count, "device_id": device, "device_type": "CUDA", "time (ns)": time_ns}
    return {**scope(name), "metrics": metrics}


def tree(*children: Node) -> list[Any]:
    root = {**scope("ROOT", *children), "metrics": {"count": 0, "time (ns)": 0}}
    devices = {
        "CUDA": {
            "0": {
                "arch": "90",
                "bus_width": 5120,
                "clock_rate": 1980000,
                "memory_clock_rate": 2619000,
                "num_sms": 132,
            }
        }
    }
    return [root, devices]


def event(name: str, at_ns: int, end_ns: int, tid: int, category: str = "kernel") -> Node:
    stack = {"call_stack": ["ROOT", "decode", name]}
    times = {"ts": at_ns / 1000, "dur": (end_ns - at_ns) / 1000}
    return {"args": stack, "cat": category, "name": name, "ph": "X", "pid": 0, "tid": tid, **times}


def trace(*streams: Sequence[Node]) -> bytes:
    """A line with a document for each stream."""
    lines = ({"displayTimeUnit": "us", "traceEvents": list(events)} for events in streams)
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
