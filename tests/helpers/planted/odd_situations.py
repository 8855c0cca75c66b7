"""Traces that hold less than a run of decode steps, or more than one: little of them is known, and
that is said."""

import random
from dataclasses import replace

from decodescope.analyzer.schema.answer import Bound
from tests.helpers.foreign.layered import LAYER
from tests.helpers.planted.decode_traces import COPY, Kernel, Plan, Step
from tests.helpers.planted.drawn_steps import (
    ALL_REDUCE,
    HTOD,
    UNIT,
    US,
    drawn,
    jittered,
    kernels,
    numbered,
    vllm_prefill,
)
from tests.helpers.planted.situation import Situation
from tests.helpers.planted.truth import COMMUNICATION, COPIES


def one_step(rng: random.Random) -> Situation:
    return Situation(
        ((Plan((Step(kernels(rng, 3, 8 * US, 12 * US), mark="decode_step_0"),)),),), "kernels"
    )


def one_op(rng: random.Random) -> Situation:
    kernel = kernels(rng, 1, 8 * US, 12 * US)[rng.randrange(1, len(LAYER))]
    step = Step((replace(kernel, name="cutlass_gemm"),), mark="decode_step_0")
    return Situation(((Plan((step,)),),), "kernels", has_roles=False)


def one_layer(rng: random.Random) -> Situation:
    step = Step(kernels(rng, 1, 8 * US, 12 * US))
    steps = numbered(jittered(rng, step, 4), "decode_step_")
    return Situation(((Plan(steps),),), "kernels", has_roles=False)


def only_a_prefill(rng: random.Random) -> Situation:
    step = Step(kernels(rng, 3, 80 * US, 120 * US), "prefill", 1, vllm_prefill(2048))
    return Situation(((Plan((step,)),),), "kernels")


def whole_microseconds(rng: random.Random) -> Situation:
    made = Step(kernels(rng, rng.randint(2, 4), 5 * US, 9 * US))
    steps = numbered(jittered(rng, made, 5), "decode_step_")
    return Situation(((Plan(steps, coarse=True),),), "kernels")


def two_models(rng: random.Random) -> Situation:
    """Steps of two models in one process: the batch size that most decode steps have counts."""
    large = Step(kernels(rng, 4, 8 * US, 12 * US), "decode", 8, "step[DECODE bs=8]")
    small = Step(kernels(rng, 2, 3 * US, 5 * US), "decode", 2, "step[DECODE bs=2]")
    steps = [*jittered(rng, large, 6), *jittered(rng, small, 3)]
    rng.shuffle(steps)
    return Situation(((Plan(tuple(steps)),),), "kernels")


def two_engines(rng: random.Random) -> Situation:
    """Steps of two processes, each on a GPU of its own, in one trace."""
    plans = []
    for number in (1, 2):
        step = Step(kernels(rng, 3, 8 * US, 12 * US), "decode", 8, "step[DECODE bs=8]")
        begin_ns = 1_000_000 + number * UNIT
        steps = jittered(rng, step, 5)
        plans.append(
            Plan(steps, begin_ns=begin_ns, number=number, pid=4242 + number, device=number - 1)
        )
    return Situation((tuple(plans),), "kernels")


def cut_window(rng: random.Random) -> Situation:
    made = Step(kernels(rng, rng.randint(2, 4), 5 * US, 9 * US), graph=rng.random() < 0.5)
    steps = numbered(jittered(rng, made, 6), "decode_step_")
    return Situation(((Plan(steps, cut=True),),), "kernels")


def alike_names(rng: random.Random) -> Situation:
    """Long names that differ in one place each, as templates do."""
    tiles = rng.sample(range(100, 1000), 12)
    made = [
        Kernel(
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, "
            f"int>, Mainloop<{'Stage, ' * 9}cute::C<{tile}>, {'Warp, ' * 9}>>>(Params)",
            "other",
            drawn(rng, 9 * US, 30 * US),
        )
        for tile in tiles
    ]
    steps = numbered(jittered(rng, Step(tuple(made)), 4), "decode_step_")
    return Situation(((Plan(steps),),), "kernels", has_roles=False)


def without_steps(rng: random.Random, made: list[Kernel], bound: Bound) -> Situation:
    step = Step(tuple(made), "unknown", graph=False)
    return Situation(((Plan((step,)),),), bound, has_roles=False, has_steps=False)


def no_steps(rng: random.Random) -> Situation:
    """Kernels that neither repeat nor have a mark."""
    names = [f"some_kernel_{number}" for number in range(20)]
    made = [Kernel(name, "other", drawn(rng, 9 * US, 30 * US)) for name in names]
    return without_steps(rng, made, "kernels")


def only_copies(rng: random.Random) -> Situation:
    count = rng.randint(3, 9)
    lengths = [drawn(rng, 90 * US, 300 * US) for _ in range(count)]
    made = [Kernel(HTOD, COPIES, ns, category=COPY) for ns in lengths]
    return without_steps(rng, made, "copies")


def only_nccl(rng: random.Random) -> Situation:
    lengths = [drawn(rng, 30 * US, 90 * US) for _ in range(rng.randint(3, 9))]
    made = [Kernel(ALL_REDUCE, COMMUNICATION, ns) for ns in lengths]
    return without_steps(rng, made, "communication")


ODD = (
    one_step,
    one_op,
    one_layer,
    only_a_prefill,
    whole_microseconds,
    two_models,
    two_engines,
    cut_window,
    alike_names,
    no_steps,
    only_copies,
    only_nccl,
)
