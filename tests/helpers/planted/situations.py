"""Named situations of decode traces with a known answer, each drawn anew from a seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.schema.step_report import StepKind
from tests.helpers.foreign.layered import LAYER, LAYER_ROLES, step_names
from tests.helpers.planted.decode_traces import (
    COPY,
    PYTHON_FORWARD,
    PYTHON_SCHEDULE,
    PYTHON_STEP,
    Hold,
    Kernel,
    Plan,
    Step,
    file_of,
)
from tests.helpers.planted.truth import COMMUNICATION, COPIES, Truth, truth_of, truth_of_windows

US, MS = 1_000, 1_000_000
# Shared time of two, three or four ops is divided exactly.
UNIT = 12
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HTOD = "Memcpy HtoD (Pinned -> Device)"
MODEL, MODEL_LAYERS, BYTES_PER_S = "meta-llama/Llama-3.2-1B", 16, 3.35e12
HIDDEN, INTERMEDIATE, KV_WIDTH, VOCABULARY = 2048, 8192, 512, 128_256


@dataclass(frozen=True)
class Situation:
    """One trace file, or one a rank: the plans of each, and what is known of the answer.

    `has_roles`: the names decide the role of every kernel. `late_frame` is the Python frame during
    which the device waits most. `limit_ns` is that of the weights and the KV cache of `model`.
    `is_exact`: the step time is known to the ns, else to 1 %.
    """

    files: tuple[tuple[Plan, ...], ...]
    bound: Bound | None = None
    has_roles: bool = True
    late_frame: str | None = None
    model: str | None = None
    limit_ns: int | None = None
    has_steps: bool = True
    is_exact: bool = True

    @property
    def traces(self) -> tuple[bytes, ...]:
        return tuple(file_of(plans) for plans in self.files)

    @property
    def truths(self) -> tuple[Truth, ...]:
        """The truth of each file."""
        known = truth_of if self.has_steps else truth_of_windows
        return tuple(known(plans) for plans in self.files)


def situation(name: str, seed: int) -> Situation:
    return SITUATIONS[name](random.Random(f"{name} {seed}"))


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


def unmarked_steps(rng: random.Random) -> Situation:
    step = Step(kernels(rng, rng.randint(4, 6), 6 * US, 12 * US), "unknown", schedule_ns=60 * US)
    return Situation(((Plan(jittered(rng, step, rng.randint(4, 7))),),), "kernels")


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


SITUATIONS: dict[str, Callable[[random.Random], Situation]] = {
    made.__name__: made
    for made in (
        host_bound, late_scheduler, memory_bound, slow_kernels, all_reduces, copies_largest,
        vllm_prefills, old_vllm_prefills, sglang_prefills, mixed_steps, vllm_frames, sglang_frames,
        draft_and_verify,
        interrupted, slow_launch, micro_batches, early_launches, unmarked_steps, ranks,
        one_step, one_op, one_layer, only_a_prefill, whole_microseconds, two_models, two_engines,
        cut_window, alike_names, no_steps, only_copies, only_nccl,
    )
}  # fmt: skip
