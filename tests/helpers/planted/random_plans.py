"""Plans of traces that no situation names: any kinds of steps, kernels, launches and overlaps."""

import random
from dataclasses import replace

from decodescope.analyzer.schema.step_report import StepKind
from tests.helpers.planted.decode_traces import COPY, FILL, Kernel, Plan, Step
from tests.helpers.planted.drawn_steps import (
    ALL_REDUCE,
    HTOD,
    US,
    drawn,
    jittered,
    kernels,
    vllm,
    vllm_prefill,
)
from tests.helpers.planted.situation import Situation
from tests.helpers.planted.truth import COMMUNICATION, COPIES

_KINDS: tuple[tuple[StepKind, int | None, str], ...] = (
    ("decode", None, "decode_step_7"),
    ("decode", 8, vllm(8, 9_000)),
    ("decode", 4, vllm(4, 700)),
    ("prefill", 1, vllm_prefill(700)),
    ("decode", 3, "step[DECODE bs=3]"),
    ("prefill", 2, "step[EXTEND bs=2 toks=900]"),
    ("mixed", 2, "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 g_sq=1 g_sk=12]"),
)
_ENGINES = ((0,), (1, 2, 3), (4, 5, 6))


def random_situation(rng: random.Random) -> Situation:
    """Marked steps without interruptions, of which the step time is known whatever they hold."""
    engine = rng.choice(_ENGINES)
    most_ns = rng.choice((US, 9 * US, 90 * US))
    # On two streams, a step could begin before the one in front of it.
    waits = rng.random() < 0.5
    streams = rng.choice(((7,), (7, 20))) if waits else (7,)
    steps: list[Step] = []
    for _ in range(rng.randint(1, 3)):
        kind, batch, mark = _KINDS[rng.choice(engine)]
        made = _kernels(rng, most_ns, streams)
        step = Step(
            made,
            kind,
            batch,
            mark,
            graph=rng.random() < 0.5,
            waits=waits,
            schedule_ns=drawn(rng, 0, 60 * US),
            python_ns=drawn(rng, 0, 20 * US),
        )
        steps += jittered(rng, step, rng.randint(1, 5))
    rng.shuffle(steps)
    plan = Plan(tuple(steps), frames=rng.random() < 0.3, begin_ns=rng.choice((0, 10**6, 10**18)))
    return Situation(((plan,),), has_roles=False)


def _kernels(rng: random.Random, most_ns: int, streams: tuple[int, ...]) -> tuple[Kernel, ...]:
    """The kernels of a step of 0 to 4 layers, or a single one; with copies, fills, overlaps."""
    made = kernels(rng, rng.randint(0, 4), 12, most_ns, all_reduce_ns=rng.choice((0, 0, most_ns)))
    if rng.random() < 0.1:
        return made[:1]
    copies = (
        Kernel(HTOD, COPIES, drawn(rng, 12, most_ns), category=COPY),
        Kernel("Memset (Device)", COPIES, 12, category=FILL),
        Kernel(ALL_REDUCE, COMMUNICATION, drawn(rng, 12, most_ns)),
    )
    made = rng.choice((made, made, (copies[0], *made), (*made, *copies)))
    least_gap_ns = rng.choice((600, 600, -600))
    return tuple(
        replace(kernel, stream=rng.choice(streams), gap_ns=drawn(rng, least_gap_ns, 900))
        for kernel in made
    )
