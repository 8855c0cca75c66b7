"""The claim `qwen-block`: the attention block of Qwen2.5-0.5B at each length, transformers' and
fused, one by one and in CUDA graphs, and what a token launches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.block.attention_block import (
    EagerBlock,
    FusedBlock,
    GrowingCache,
    Subject,
    random_inputs,
)
from benchmarks.block.block_bench import CACHE_LENGTHS, measure_block, one_layer_model
from benchmarks.block.report import BlockFigures
from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.qwen_block import projection
from benchmarks.claims.qwen_block.projection import race_projection
from benchmarks.claims.report import EntrantFigures, Race, Row, Source
from benchmarks.claims.rows import speed_up
from benchmarks.claims.traced import traced
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.text.formatting import duration
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.machine.clock import Call
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DType
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import tiles_for
from decodescope.variants.tuning.report import RoundSpread

MODEL = "qwen2.5-0.5b@random"
DTYPE: DType = "fp16"
EAGER, FUSED = "transformers", "fused"
WHOLE_STEPS = ("eager", "fused")
_TOKENS = 8
# The least that is printed as 1.000000.
_COSINE = 0.9999995

SOURCE = Source(
    title='"Building a Bit-Accurate Fused QKV + RoPE Kernel for Qwen 2.5 in Triton" (R. Kharyal)',
    url="https://dev.to/rishabh_kharyal_5d4e2610b/"
    "building-a-bit-accurate-fused-qkv-rope-kernel-for-qwen-25-in-triton-1901",
    gpu="RTX 3050",
    name="Kharyal",
)

_NOTES = (
    "Only the introduction of the source could be read: 5.4 x with a graph, 3 launches a layer and "
    "the lengths 64 to 512 are as cited, and dtype and timing are unknown. Here float16.",
    "The source counts 80 µs for each launch on its laptop, so its 4.5 to 5 x are a ratio of "
    "launches: the block's weights are a few MB. The lower end of its range stands here.",
    "A block here is input norm to O-projection and residual. Its cosine is to transformers' block "
    "in float32; 1.000000 is at least 0.9999995.",
)


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one block, by way, and of a token's whole step, by variant."""

    block: Mapping[str, RoundSpread]
    step: Mapping[str, float | None]


def measure_qwen_block(setup: Setup) -> Measured:
    """All rows on the current GPU."""
    source = resolve_model(MODEL)
    assert source.preset is not None
    setup.say(f"one layer of {MODEL}")
    model = one_layer_model(source, "cuda", DTYPE, 1)
    parts, gpu = fused_model(model), this_target_gpu()
    session = ProfilerSession("cuda")
    session.warm_up()
    subjects, figures = [], []
    for length in CACHE_LENGTHS:
        setup.say(f"the block after {length} tokens")
        inputs = random_inputs(parts, 1, length)
        tiles = tiles_for(step_shapes(parts, 1, length + 1), gpu).tiles
        subjects.append(Subject(model, parts, inputs, tiles, can_overlap(inputs.x.device)))
        figures.append(measure_block(subjects[-1], DTYPE, setup.racing.clock))
        setup.racing.between_rounds()
    projected = race_projection(setup.racing, subjects[-1])
    launches = Launches(
        block_launches(subjects[-1], session, "cuda"),
        {name: _step_launches(name, setup) for name in WHOLE_STEPS},
    )
    races = [block_race(one, launches.block) for one in figures]
    floor_ns = setup.racing.launch_floor_ns
    rows = [
        *(row for one, race in zip(figures, races, strict=True) for row in block_rows(one, race)),
        *projection_rows(projected, floor_ns),
        *launch_rows(launches, source.preset.config["num_hidden_layers"]),
    ]
    return Measured(tuple(rows), (*races, projected), _NOTES)


def block_launches(
    subject: Subject, session: ProfilerSession, device: str
) -> dict[str, RoundSpread]:
    """The GPU ops of one block in traces of both ways."""
    eager = EagerBlock(subject.model, subject.model.model.layers[0], subject.inputs)
    growing, fused = GrowingCache(subject.inputs), FusedBlock(subject)

    def eager_block() -> None:
        eager(subject.inputs.x[:, None], growing.cache)
        growing.rewind()

    ways: dict[str, Call] = {EAGER: eager_block, FUSED: partial(fused.launch, follows=False)}
    return {
        name: traced(session, call, MODEL, name, DTYPE, None, device).launches
        for name, call in ways.items()
    }


def block_race(figures: BlockFigures, launches: Mapping[str, RoundSpread]) -> Race:
    """The times of one length as a race; a block that failed its check has none."""
    times = figures.times

    def entrant(
        name: str, device: RoundSpread | None, launched: RoundSpread | None
    ) -> EntrantFigures:
        what = f"input norm to residual: {launches[name].median:g} launches"
        ours = name == FUSED
        return EntrantFigures(
            name,
            what,
            ours,
            device_ns=device,
            launched_ns=launched,
            error=figures.error if ours else None,
        )

    if times is None:
        entrants = entrant(EAGER, None, None), entrant(FUSED, None, None)
    else:
        entrants = (
            entrant(EAGER, times.eager_graphed_ns, times.eager_ungraphed_ns),
            entrant(FUSED, times.fused_graphed_ns, times.fused_ungraphed_ns),
        )
    return Race(f"block after {figures.cache_length} tokens, {figures.dtype}", entrants)


def block_rows(figures: BlockFigures, race: Race) -> Iterator[Row]:
    """The speed-ups and the cosine at one length."""
    at = f"after {figures.cache_length} tokens"
    yield speed_up(f"block {at}, both one by one", race, EAGER, FUSED, 4.5, launched=True)
    graphed = f"block {at}, fused in a CUDA graph over one by one"
    if figures.times is None:
        yield Row(graphed, "ratio", 5.4, error=f"{FUSED}: {figures.error}")
    else:
        eager_ns, fused_ns = figures.times.eager_ungraphed_ns, figures.times.fused_graphed_ns
        yield Row(
            graphed,
            "ratio",
            5.4,
            figures.times.eager_ungraphed_over_fused_graphed,
            explanation=f"{duration(eager_ns.median)} to {duration(fused_ns.median)}",
        )
    yield speed_up(f"block {at}, both in CUDA graphs", race, EAGER, FUSED, None)
    yield Row(
        f"block {at}: cosine to float32",
        "cosine",
        _COSINE,
        RoundSpread.of([figures.fused_cosine]),
        limit=1.0,
        explanation=f"transformers' own in {figures.dtype}: {figures.eager_cosine:.7f}",
    )


def projection_rows(race: Race, floor_ns: float) -> Iterator[Row]:
    """The launch that the source fuses, alone."""
    names = projection.PYTORCH, projection.OURS
    what = "Q, K, V, RoPE and KV write"
    yield speed_up(f"{what}, one by one", race, *names, 4.5, floor_ns, launched=True)
    yield speed_up(f"{what}, in CUDA graphs", race, *names, None, floor_ns)


def launch_rows(launches: Launches, layers: int) -> Iterator[Row]:
    """Launches of a token, of its attention blocks as the source counts, and of its whole step."""
    for name, published in ((EAGER, 240.0), (FUSED, 72.0)):
        block = launches.block[name]
        yield Row(
            f"launches a token, attention blocks, {name}",
            "launches",
            published,
            RoundSpread.of([layers * one for one in block.rounds]),
            higher_is_better=False,
            explanation=f"{layers} layers of {block.median:g}, by a trace; theirs are {layers} of "
            f"{published / layers:g}",
            baseline=name == EAGER,
        )
    for name, found in launches.step.items():
        what = f"launches a token, whole step, {name}"
        if found is None:
            yield Row(what, "launches", error="the trace has no steps")
        else:
            yield Row(
                what,
                "launches",
                None,
                RoundSpread.of([found]),
                higher_is_better=False,
                explanation="GPU ops of a profiled step: the blocks, MLPs, norms and the head",
            )


def _step_launches(variant: str, setup: Setup) -> float | None:
    config = WorkerConfig(
        variant=variant,
        batch=1,
        tokens=_TOKENS,
        model=MODEL,
        context=CACHE_LENGTHS[0],
        dtype=DTYPE,
        device="cuda",
    )
    report = run_variant(config, None, setup.say)
    assert report is not None, "one rank reports"
    return report.gpu_ops_per_step


QWEN_BLOCK = Claim(
    "qwen-block",
    "fused QKV, RoPE and KV write: 240 launches to 3 a layer, 4.5 to 5 x, 5.4 x in a graph",
    SOURCE,
    measure_qwen_block,
)
