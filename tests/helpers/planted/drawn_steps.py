"""Steps of a decoder drawn from a generator, and the annotations of engines."""

import random
from dataclasses import replace

from tests.helpers.foreign.layered import LAYER_ROLES, step_names
from tests.helpers.planted.decode_traces import Kernel, Step
from tests.helpers.planted.truth import COMMUNICATION

US, MS = 1_000, 1_000_000
# Shared time of two, three or four ops is divided exactly.
UNIT = 12
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HTOD = "Memcpy HtoD (Pinned -> Device)"


def drawn(rng: random.Random, least_ns: int, most_ns: int) -> int:
    return rng.randrange(least_ns, most_ns) // UNIT * UNIT


def kernels(
    rng: random.Random,
    layers: int,
    least_ns: int,
    most_ns: int,
    *,
    all_reduce_ns: int = 0,
    stream: int = 7,
) -> tuple[Kernel, ...]:
    """The kernels of a step; all-reduces after the O and the down product if they take any time."""
    roles = ("copy", *LAYER_ROLES * layers, "norm", "head", "sampling")
    made: list[Kernel] = []
    for name, role in zip(step_names(layers), roles, strict=True):
        ns, gap_ns = drawn(rng, least_ns, most_ns), drawn(rng, 600, 900)
        made.append(Kernel(name, role, ns, gap_ns, stream))
        if all_reduce_ns and role in ("o", "down"):
            ns = drawn(rng, all_reduce_ns, all_reduce_ns * 5 // 4)
            made.append(Kernel(ALL_REDUCE, COMMUNICATION, ns, 600, stream))
    return tuple(made)


def jittered(rng: random.Random, step: Step, count: int, most_ns: int = 600) -> tuple[Step, ...]:
    """Steps like this one, whose kernels take up to `most_ns` longer."""
    return tuple(
        replace(
            step,
            kernels=tuple(
                replace(kernel, ns=kernel.ns + drawn(rng, 0, most_ns)) for kernel in step.kernels
            ),
        )
        for _ in range(count)
    )


def numbered(steps: tuple[Step, ...], mark: str) -> tuple[Step, ...]:
    return tuple(replace(step, mark=f"{mark}{index}") for index, step in enumerate(steps))


def vllm(batch: int, kv_tokens: int) -> str:
    sums = f"sq{batch}sk{kv_tokens}sqsq{batch}sqsk{kv_tokens}"
    return f"execute_{batch}_context_0(sq0sk0sqsq0sqsk0)_generation_{batch}({sums})"


def vllm_prefill(tokens: int) -> str:
    sums = f"sq{tokens}sk{tokens}sqsq{tokens**2}sqsk{tokens**2}"
    return f"execute_{tokens}_context_1({sums})_generation_0(sq0sk0sqsq0sqsk0)"
