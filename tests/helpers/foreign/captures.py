"""Hand-made profiles of graph captures, and traces of their replays."""

from collections.abc import Sequence
from typing import Any

import msgspec

from decodescope.analyzer import Analysis
from decodescope.analyzer.schema.report import Attribution
from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of

MARKER = "execute_32_context_0(sq0)_generation_32(sq32)"
# A node's kernel or call name, the modules around it, and its operator.
Node = tuple[str, tuple[str, ...], str]
COPIES = {"Memcpy": "cudaMemcpyAsync", "Memset": "cudaMemsetAsync"}


def model(
    layers: int, *, kernels: Sequence[str] = ("norm", "qkv", "attention", "gemm")
) -> list[Node]:
    """A prologue, layers of equal kernels, and an epilogue."""
    inside = [
        (name, ("Model_0", f"Layer_{n}"), f"aten::{name}")
        for n in range(layers)
        for name in kernels
    ]
    return [("embed", ("Model_0",), "aten::embed"), *inside, ("head", ("Model_0",), "aten::head")]


def module(start: int, end: int, name: str) -> Event:
    return event("python_function", f"nn.Module: {name}", start, end, PID, 1)


def launch(at: int, number: int, name: str, named: bool = True) -> Event:
    """A captured call of a kernel, or a copy or fill."""
    if name in COPIES:
        return call(at, at + 1, number, name=COPIES[name])
    made = call(at, at + 1, number, name="hipLaunchKernel" if named else "cudaLaunchKernel")
    made["args"]["External id"] = 10_000 + number
    if named:
        made["args"]["kernel"] = name
    return made


def captured(
    nodes: Sequence[Node],
    *,
    at: int = 0,
    number: int = 1,
    named: bool = True,
    around: str = "",
    begin: bool = True,
    end: bool = True,
) -> list[Event]:
    """The events of one capture from `at` on: 10 ns a node, calls numbered from `number`."""
    events: list[Event] = []
    first, last = at + 10, at + 10 * (len(nodes) + 1)
    if begin:
        events.append(call(at + 5, at + 6, number, name="cudaStreamBeginCapture"))
    if end:
        events.append(call(last + 1, last + 2, number + 1, name="cudaStreamEndCapture"))
    opened: list[tuple[str, int]] = []
    for k, (name, modules, operator) in enumerate([*nodes, ("", (), "")]):
        now = first + 10 * k
        shared = 0
        while shared < min(len(opened), len(modules)) and opened[shared][0] == modules[shared]:
            shared += 1
        for depth, (path, since) in enumerate(opened[shared:], shared):
            events.append(module(since + depth, now - 1 - depth, path))
        opened = [*opened[:shared], *((one, now) for one in modules[shared:])]
        if k == len(nodes):
            break
        events.append(launch(now + 4, number + 10 + k, name, named))
        if operator:
            events.append(event("cpu_op", operator, now + 3, now + 5, PID, 1))
    if around:
        events.append(span(at, last + 5, around))
    return events


def capture_of(*captures: Sequence[Event], **keys: Any) -> Trace:
    return trace_of(*(one for events in captures for one in events), **keys)


def replays(
    *graphs: Sequence[str],
    at: int = 0,
    marker: str = MARKER,
    node_ids: bool = False,
    streams: Sequence[int] = (),
    graph_ids: Sequence[int] = (),
) -> list[Event]:
    """One step that launches graphs of these kernels one after the other."""
    events = [span(at, at + 10 * len(graphs) + 10, marker)] if marker else []
    start = at + 1_000
    for place, names in enumerate(graphs):
        number = 1 + at + place
        events.append(
            call(at + 5 + 10 * place, at + 8 + 10 * place, number, name="cudaGraphLaunch")
        )
        graph = graph_ids[place] if graph_ids else 5 + place
        for k, name in enumerate(names):
            more: dict[str, Any] = {}
            if node_ids:
                more["graph node id"] = (graph << 32) + k + 1
            category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name, "kernel")
            stream = streams[k] if streams else 7
            events.append(
                op(start, start + 8, number, name=name, cat=category, stream=stream, **more)
            )
            start += 10
    return events


def kernels(nodes: Sequence[Node]) -> list[str]:
    return [name for name, _, _ in nodes]


def paths_of(nodes: Sequence[Node]) -> list[str]:
    return ["/".join((*modules, operator)) for _, modules, operator in nodes]


def attributed(analysis: Analysis) -> Attribution:
    """How many ops have a path, by confidence, whatever their names say."""
    found = analysis.report.attribution
    assert found is not None
    return msgspec.structs.replace(found, inferred=0)
