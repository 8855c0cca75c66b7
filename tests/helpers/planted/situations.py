"""Named situations of decode traces with a known answer, each drawn anew from a seed."""

import random
from collections.abc import Callable
from dataclasses import replace

from decodescope.analyzer.schema.step_report import StepKind
from tests.helpers.planted.decode_traces import (
    COPY,
    PYTHON_FORWARD,
    PYTHON_SCHEDULE,
    PYTHON_STEP,
    Hold,
    Kernel,
    Plan,
    Step,
)
from tests.helpers.planted.drawn_steps import (
    HTOD,
    MS,
    UNIT,
    US,
    drawn,
    jittered,
    kernels,
    numbered,
    vllm,
    vllm_prefill,
)
from tests.helpers.planted.odd_situations import ODD
from tests.helpers.planted.situation import Situation
from tests.helpers.planted.truth import COPIES

MODEL, MODEL_LAYERS, BYTES_PER_S = "meta-llama/Llama-3.2-1B", 16, 3.35e12
HIDDEN, INTERMEDIATE, KV_WIDTH, VOCABULARY = 2048, 8192, 512, 128_256


def host_bound(rng: random.Random) -> Situation:
    """Launches one by one that come late, each after some Python."""
    step = Step(
        kernels(rng, rng.randint(2, 4), 3 * US, 6 * US),
        graph=False,
        schedule_ns=drawn(rng, 40 * US, 90 * US),
        python_ns=drawn(rng, 16 * US, 25 * US),
    )
    steps = numbered(jittered(rng, step, rng.randint(5, 8)), "decode_step_")
    return Situation(((Plan(steps, frames=True),),), "host", late_frame=PYTHON_FORWARD)


def late_scheduler(rng: random.Random) -> Situation:
    """One graph a step, and a scheduler that takes longer than it."""
    step = Step(
        kernels(rng, 3, 3 * US, 5 * US),
        "decode",
        8,
        vllm(8, 4096),
        schedule_ns=drawn(rng, MS, 2 * MS),
    )
    steps = jittered(rng, step, rng.randint(5, 8))
    return Situation(((Plan(steps, frames=True),),), "host", late_frame=PYTHON_SCHEDULE)


def of_model(rng: random.Random, slowness: float, batch: int, kv_tokens: int) -> Situation:
    """Steps of the model in which each product and attention takes `slowness` times its limit."""
    weights = {
        "qkv": HIDDEN * (HIDDEN + 2 * KV_WIDTH),
        "o": HIDDEN * HIDDEN,
        "gate_up": HIDDEN * 2 * INTERMEDIATE,
        "down": HIDDEN * INTERMEDIATE,
        "head": HIDDEN * VOCABULARY,
        "attention": kv_tokens * 2 * KV_WIDTH,
    }
    limits_ns = {role: 2 * size / BYTES_PER_S * 1e9 for role, size in weights.items()}
    step = Step(
        tuple(
            replace(kernel, ns=round(slowness * limits_ns[kernel.part] + 800) // UNIT * UNIT)
            if kernel.part in limits_ns
            else kernel
            for kernel in kernels(rng, MODEL_LAYERS, US, 2 * US)
        ),
        "decode",
        batch,
        vllm(batch, kv_tokens),
        schedule_ns=drawn(rng, 8 * US, 20 * US),
    )
    layers_ns = MODEL_LAYERS * sum(ns for role, ns in limits_ns.items() if role != "head")
    return Situation(
        ((Plan(jittered(rng, step, 3, 200)),),),
        "memory" if slowness < 1.5 else "kernels",
        model=MODEL,
        limit_ns=round(layers_ns + limits_ns["head"]),
    )


def memory_bound(rng: random.Random) -> Situation:
    return of_model(rng, rng.uniform(1.1, 1.2), rng.choice((1, 8)), rng.randint(8_000, 16_000))


def slow_kernels(rng: random.Random) -> Situation:
    return of_model(rng, rng.uniform(2.5, 3.5), rng.choice((1, 8)), rng.randint(8_000, 16_000))


def all_reduces(rng: random.Random) -> Situation:
    made = kernels(rng, rng.randint(2, 4), 3 * US, 5 * US, all_reduce_ns=60 * US)
    steps = numbered(jittered(rng, Step(made), rng.randint(3, 6)), "decode_step_")
    return Situation(((Plan(steps),),), "communication")


def copies_largest(rng: random.Random) -> Situation:
    """Offloaded weights: a step waits for its copies."""
    copies = (Kernel(HTOD, COPIES, drawn(rng, 400 * US, 900 * US), 900, category=COPY),)
    step = Step(copies + kernels(rng, rng.randint(2, 4), 3 * US, 6 * US))
    steps = numbered(jittered(rng, step, rng.randint(3, 6)), "decode_step_")
    return Situation(((Plan(steps),),), "copies")


def among_decode(rng: random.Random, decode: Step, other: Step) -> Situation:
    """Decode steps with one or two longer steps of another kind among them."""
    layers = rng.randint(2, 4)
    step = replace(decode, kernels=kernels(rng, layers, 8 * US, 12 * US))
    long = replace(other, kernels=kernels(rng, layers, 120 * US, 150 * US))
    steps = list(jittered(rng, step, rng.randint(5, 8)))
    for _ in range(rng.randint(1, 2)):
        steps.insert(rng.randint(0, len(steps) - 1), long)
    return Situation(((Plan(tuple(steps), frames=decode.mark is None),),), "kernels")


def marked(kind: StepKind, batch: int, mark: str) -> Step:
    return Step((), kind, batch, mark)


def framed(kind: StepKind, frame: str) -> Step:
    return Step((), kind, frame=frame)


def vllm_prefills(rng: random.Random) -> Situation:
    decode = marked("decode", 8, vllm(8, 4_000))
    return among_decode(rng, decode, marked("prefill", 1, vllm_prefill(888)))


def old_vllm_prefills(rng: random.Random) -> Situation:
    """The annotations of older vLLM: sums joined by an underscore."""
    decode = marked("decode", 8, "execute_context_0(0_0)_generation_8(8_4000)")
    prefill = marked("prefill", 1, "execute_context_1(888_788544)_generation_0(0_0)")
    return among_decode(rng, decode, prefill)


def sglang_prefills(rng: random.Random) -> Situation:
    decode = marked("decode", 8, "step[DECODE bs=8]")
    return among_decode(rng, decode, marked("prefill", 1, "step[EXTEND bs=1 toks=1536]"))


def mixed_steps(rng: random.Random) -> Situation:
    mark = "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 g_sq=1 g_sk=12]"
    return among_decode(rng, marked("decode", 8, "step[DECODE bs=8]"), marked("mixed", 2, mark))


def vllm_frames(rng: random.Random) -> Situation:
    """Python frames alone, and attention kernels that only the prefill has."""
    made = among_decode(rng, framed("decode", PYTHON_STEP), framed("prefill", PYTHON_STEP))
    ((plan,),) = made.files
    steps = tuple(
        step if step.kind == "decode" else with_attention(step, "flash_fwd_prompt_kernel")
        for step in plan.steps
    )
    return replace(made, files=((replace(plan, steps=steps),),))


def with_attention(step: Step, name: str) -> Step:
    return replace(
        step,
        kernels=tuple(
            replace(kernel, name=name) if kernel.part == "attention" else kernel
            for kernel in step.kernels
        ),
    )


def sglang_frames(rng: random.Random) -> Situation:
    """Python frames alone, which say the kind."""
    runner = "sglang/srt/model_executor/model_runner.py"
    decode = framed("decode", f"{runner}(1700): forward_decode")
    return among_decode(rng, decode, framed("prefill", f"{runner}(1720): forward_extend"))


def draft_and_verify(rng: random.Random) -> Situation:
    """Speculation: short drafts, then one step that verifies them; verify steps come first."""
    verify = Step(kernels(rng, 4, 8 * US, 12 * US), "verify", 4, "step[TARGET_VERIFY bs=4]")
    draft = Step(kernels(rng, 2, 3 * US, 5 * US), "draft", 4, "step[DRAFT_EXTEND bs=4 toks=12]")
    rounds = rng.randint(4, 6)
    pairs = zip(jittered(rng, verify, rounds), jittered(rng, draft, rounds), strict=True)
    steps = [step for pair in pairs for step in pair] + [verify]
    return Situation(((Plan(tuple(steps)),),), "kernels")


def interrupted(rng: random.Random) -> Situation:
    """Steps of some ms, and calls or pauses of hundreds of ms."""
    calls = (None, "cuModuleLoadData", "cudaEventSynchronize", "cudaGraphInstantiate")
    holds = [Hold(0, _long(rng), rng.choice(calls)) for _ in range(rng.randint(1, 2))]
    return with_holds(rng, holds)


def slow_launch(rng: random.Random) -> Situation:
    """A launch call of hundreds of ms, all of which counts as interrupted."""
    return replace(with_holds(rng, [Hold(0, _long(rng), in_launch=True)]), is_exact=False)


def _long(rng: random.Random) -> int:
    return drawn(rng, 100 * MS, 500 * MS)


def with_holds(rng: random.Random, holds: list[Hold]) -> Situation:
    step = Step(kernels(rng, 4, 60 * US, 90 * US))
    steps = list(jittered(rng, step, rng.randint(8, 12)))
    for index, hold in zip(rng.sample(range(2, len(steps) - 1), len(holds)), holds, strict=True):
        steps[index] = replace(steps[index], hold=hold)
    return Situation(((Plan(numbered(tuple(steps), "decode_step_")),),), "kernels")


def micro_batches(rng: random.Random) -> Situation:
    """Two micro-batches in flight on two streams."""
    layers = rng.randint(2, 4)
    one, other = (kernels(rng, layers, 6 * US, 20 * US, stream=stream) for stream in (7, 20))
    both = tuple(kernel for pair in zip(one, other, strict=True) for kernel in pair)
    steps = numbered(jittered(rng, Step(both), rng.randint(3, 6)), "decode_step_")
    return Situation(((Plan(steps),),), "kernels", has_roles=False)


def early_launches(rng: random.Random) -> Situation:
    """Each kernel begins before the one in front of it ends (programmatic dependent launch)."""
    made = kernels(rng, rng.randint(2, 4), 6 * US, 20 * US)
    early = tuple(replace(kernel, gap_ns=-drawn(rng, 300, 2_400)) for kernel in made)
    steps = numbered(jittered(rng, Step(early), rng.randint(3, 6)), "decode_step_")
    return Situation(((Plan(steps),),), "kernels")


def unmarked(rng: random.Random, count: int) -> Situation:
    """Steps that only their repetition shows, as graphs or launch by launch."""
    step = Step(
        kernels(rng, rng.randint(4, 6), 6 * US, 12 * US),
        "unknown",
        graph=rng.random() < 0.5,
        schedule_ns=60 * US,
    )
    return Situation(((Plan(jittered(rng, step, count)),),), "kernels")


def unmarked_steps(rng: random.Random) -> Situation:
    return unmarked(rng, rng.randint(3, 7))


def two_unmarked_steps(rng: random.Random) -> Situation:
    return unmarked(rng, 2)


def ranks(rng: random.Random) -> Situation:
    """One file a rank."""
    count = rng.randint(2, 3)
    made = Step(kernels(rng, 3, 6 * US, 12 * US, all_reduce_ns=4 * US))
    return Situation(
        tuple(
            (
                Plan(
                    numbered(jittered(rng, made, 4), "decode_step_"),
                    keys={"distributedInfo": {"rank": rank, "world_size": count}},
                ),
            )
            for rank in range(count)
        ),
        "kernels",
    )


SITUATIONS: dict[str, Callable[[random.Random], Situation]] = {
    made.__name__: made
    for made in (
        host_bound,
        late_scheduler,
        memory_bound,
        slow_kernels,
        all_reduces,
        copies_largest,
        vllm_prefills,
        old_vllm_prefills,
        sglang_prefills,
        mixed_steps,
        vllm_frames,
        sglang_frames,
        draft_and_verify,
        interrupted,
        slow_launch,
        micro_batches,
        early_launches,
        unmarked_steps,
        two_unmarked_steps,
        ranks,
        *ODD,
    )
}


def situation(name: str, seed: int) -> Situation:
    return SITUATIONS[name](random.Random(f"{name} {seed}"))
