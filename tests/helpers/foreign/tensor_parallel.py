"""Decode steps of an engine on one of four devices, whose kernels have no shapes."""

from typing import Any

from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.layered import step_names
from tests.helpers.kineto_events import Event, call, op, span, trace_of

H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
KERNEL_NS, GAP_NS = 40_000, 500
GATHER = {
    "Collective name": "_allgather_base",
    "In msg nelems": 32_064,
    "dtype": "BFloat16",
    "Process Group Ranks": "[0, 1, 2, 3]",
}


def engine_trace(**options: Any) -> Trace:
    return trace_of(*engine_events(**options), **H100)


def engine_events(
    *,
    layers: int = 80,
    kernel_ns: int = KERNEL_NS,
    more: str = "",
    marker: str = "step_{}",
    gather: dict[str, object] | None = None,
    classes: tuple[str, ...] = ("LlamaForCausalLM_0",),
) -> list[Event]:
    """Three decode steps of kernels without shapes, on one of four devices; the last one gathers
    the logits of one request."""
    names = [*step_names(layers, more), "ncclDevKernel_AllGather_RING_LL"]
    events: list[Event] = []
    for step in range(3):
        at = step * (len(names) * (kernel_ns + GAP_NS) + 200_000)
        if marker:
            events.append(span(at, at + 100_000, marker.format(step)))
        events += [span(at + 1, at + 99_000, name) for name in classes]
        for place, name in enumerate(names):
            number = step * len(names) + place + 1
            start = at + 110_000 + place * (kernel_ns + GAP_NS)
            message = (GATHER if gather is None else gather) if name.startswith("nccl") else {}
            events.append(call(at + 10 + 2 * place, at + 11 + 2 * place, number))
            events.append(op(start, start + kernel_ns, number, name=name, **message))
    return events
