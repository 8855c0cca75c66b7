"""Hand-made decode steps whose layers and roles follow from the names of their kernels alone."""

from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.planted.holds import held_before, launching_calls, ran_long

PROLOGUE = ("vectorized_gather_kernel_embedding",)
LAYER = (
    "fused_add_rms_norm_kernel",
    "cutlass_gemm_qkv",
    "rotary_embedding_kernel",
    "reshape_and_cache_flash_kernel",
    "flash_fwd_splitkv_kernel",
    "cutlass_gemm_o",
    "fused_add_rms_norm_kernel",
    "cutlass_gemm_up",
    "act_and_mul_kernel",
    "cutlass_gemm_down",
)
LAYER_ROLES = (
    "norm",
    "qkv",
    "rope",
    "kv_write",
    "attention",
    "o",
    "norm",
    "gate_up",
    "activation",
    "down",
)
EPILOGUE = ("fused_add_rms_norm_kernel", "cutlass_gemm_head", "argmax_kernel")
LENGTH, GAP, STEP = 900, 100, 100_000


def step_names(layers: int, more: str = "") -> list[str]:
    """The kernels of one step; `more` is added to each name."""
    return [f"{name}{more}" for name in (*PROLOGUE, *LAYER * layers, *EPILOGUE)]


def layered(
    layers: int = 4,
    *,
    steps: int = 2,
    graph: bool = True,
    more: str = "",
    name: str = "step_{}",
    scale: int = 1,
) -> list[Event]:
    """Steps of 0.9 µs kernels, 0.1 µs apart, launched by one graph or one by one; all times are
    multiplied by `scale`."""
    events: list[Event] = []
    for step in range(steps):
        at, kernels = step * STEP * scale, step_names(layers, more)
        if name:
            events.append(span(at, at + (STEP - 1_000) * scale, name.format(step)))
        if graph:
            events.append(call(at + 10 * scale, at + 60 * scale, step + 1, name="cudaGraphLaunch"))
        for place, kernel in enumerate(kernels):
            number = step + 1 if graph else step * len(kernels) + place + 1
            start = at + (2_000 + place * (LENGTH + GAP)) * scale
            ids = {"graph_id": 1, "graph_node_id": place + 1} if graph else {}
            if not graph:
                events.append(call(start - 800 * scale, start - 500 * scale, number))
            events.append(op(start, start + LENGTH * scale, number, name=kernel, **ids))
    return events


def slow_layered(more: str = "") -> Trace:
    """Six steps of two layers, 10 ms apart, launched one by one."""
    return trace_of(*layered(2, steps=6, graph=False, scale=100, more=more))


def interrupted(trace: Trace) -> Trace:
    """The trace of `slow_layered` with a wait of 463 ms before an op, and an op 200 ms too long."""
    ms = 1_000_000
    call_ = launching_calls(trace)[40]
    return ran_long(held_before(trace, call_, 463 * ms, "cudaEventSynchronize"), 100, 200 * ms)
