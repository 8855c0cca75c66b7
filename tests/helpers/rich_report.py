"""A report with something in every part of it: streams, graphs, two devices, rooflines."""

import dataclasses

import numpy as np
from rich.console import Console, RenderableType

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.trace import OperatorWork
from tests.helpers.kineto_events import PID, call, event, op, span, trace_of

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
    "at::native::BinaryFunctor<float, float, float>, std::array<char*, 3ul>)"
)
CAPTURE = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "model": "llama@random",
    "weights": "random",
    "variant": "eager",
    "dtype": "bf16",
    "batch": 1,
    "context": 4,
    "position": 4,
    "steps": 2,
    "bytes_per_step": 48_000,
    "unprofiled_step_ns": 90,
    "decodescope_version": "0",
}


def text_of(renderable: RenderableType, width: int = 100) -> str:
    """What a terminal of `width` columns without colours shows."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def rich_report() -> Report:
    trace = trace_of(
        span(0, 900, "decode_step_0"),
        span(10, 400, "layer.0"),
        event("cpu_op", "aten::mul", 12, 90, PID, 1, **{"External id": 3}),
        call(20, 60, 1),
        op(100, 301, 1, name=ELEMENTWISE, **{"External id": 3}),
        call(61, 290, 2),
        op(250, 350, 2, name='we"ird\\ \x1b[31m'),
        call(410, 480, 3, name="cudaGraphLaunch"),
        op(500, 600, 3, **{"graph id": 1, "graph node id": 4294967298}),
        op(610, 700, 3, **{"graph id": 1, "graph node id": 4294967299}),
        call(500, 505, 4, name="cudaMemcpyAsync"),
        op(800, 801, 4, name="Memcpy", cat="gpu_memcpy", stream=9),
        call(1000, 1002, 5),
        op(1100, 1150, 5),
        op(820, 830, name="lost", device=1),
        span(990, 1200, "decode_step_1"),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
        decodescope=CAPTURE,
    )
    work = OperatorWork(*(np.array([one], dtype=np.int64) for one in (3, 482_400, 964_800)))
    return analyze(dataclasses.replace(trace, work=work)).report
