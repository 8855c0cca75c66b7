"""`block`: one attention block, eager and fused, with and without CUDA graphs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.block.attention_block import (
    BlockInputs,
    EagerBlock,
    FixedCache,
    FusedBlock,
    GrowingCache,
    Subject,
    random_inputs,
    reference_output,
)
from benchmarks.block.report import SCHEMA_VERSION, BlockBenchmark, BlockFigures, BlockTimes
from benchmarks.harness.launch_clock import LaunchClock
from benchmarks.harness.turns import Check, Contestant, Timer, take_turns
from benchmarks.kernels.operands import SEED
from decodescope.analyzer.errors import ModelError
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.machine.clock import Call
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.skeleton import find_files
from decodescope.variants.model.source import ModelSource, resolve_model
from decodescope.variants.model.workload import DType
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.support import require_support
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import tiles_for
from decodescope.variants.tuning.report import RoundSpread

CACHE_LENGTHS = (64, 128, 256, 512)
DTYPES: tuple[DType, ...] = ("bf16", "fp16")
REQUIRED_COSINES: dict[DType, float] = {"bf16": 0.99999, "fp16": 0.999999, "fp32": 0.9999999}

ROUNDS = 11
CALLS = 240
BLOCKS_PER_GRAPH = 24


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the block: `call` runs `blocks` of them, after `prepare`."""

    call: Call
    blocks: int
    prepare: Call


def run_block_bench(
    model: str,
    batch: int,
    lengths: Sequence[int],
    dtypes: Sequence[DType],
    say: Callable[[str], None],
) -> BlockBenchmark:
    """Check and time the first attention block of `model` in each dtype at each cache length.

    Only one layer of a preset with random weights is built, with weights that make the attention
    differ between positions. Needs what `require_gpu` checks.

    Raises:
        MissingRequirement: model not found, out of GPU memory.
        ModelError: a model the fused kernels cannot run, or whose sliding window is shorter than a
            cache length.
        InputError: a batch that they cannot run.
    """
    source = resolve_model(model)
    pdl = can_overlap(torch.device("cuda"))
    figures = []
    for dtype in dtypes:
        say(f"loading {model} in {dtype}")
        layer_model = one_layer_model(source, "cuda", dtype, batch)
        parts = fused_model(layer_model)
        for length in lengths:
            say(f"{dtype}: cache length {length}")
            tiles = tiles_for(step_shapes(parts, batch, length + 1), this_target_gpu()).tiles
            with memory_errors("measuring attention blocks", "cuda"):
                inputs = random_inputs(parts, batch, length)
                subject = Subject(layer_model, parts, inputs, tiles, pdl)
                figures.append(measure_block(subject, dtype, LaunchClock()))
    return BlockBenchmark(
        schema_version=SCHEMA_VERSION,
        model=model,
        batch=batch,
        rounds=ROUNDS,
        calls=CALLS,
        blocks_per_graph=BLOCKS_PER_GRAPH,
        blocks=tuple(figures),
        environment=environment(),
    )


def one_layer_model(source: ModelSource, device: str, dtype: DType, batch: int) -> Any:
    """The transformers model; a preset with random weights gets only its first layer.

    Raises:
        ModelError, InputError, MissingRequirement: as `require_support` and `load_model`.
    """
    if source.kind == "random" and source.preset is not None:
        config = source.preset.config | {"num_hidden_layers": 1}
        source = replace(source, preset=replace(source.preset, config=config))
    files = find_files(source)
    require_support(source.name, files.config, batch, device)
    model = load_model(source, device, dtype, files=files).model
    if source.kind == "random":
        spread_weights(model.model.layers[0])
    return model


@torch.no_grad()
def spread_weights(layer: Any) -> None:
    """Draw weights that preserve the size of activations, random norms and biases, and queries
    large enough that attention differs between positions."""
    generator = torch.Generator(layer.self_attn.q_proj.weight.device).manual_seed(SEED)
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0.0, 0.3, generator=generator)
        elif parameter.dim() == 1:
            parameter.normal_(1.0, 0.2, generator=generator)
        else:
            size = 2.0 if "q_proj" in name else 1.0
            parameter.normal_(0.0, size * parameter.shape[1] ** -0.5, generator=generator)


@torch.no_grad()
def measure_block(
    subject: Subject,
    dtype: DType,
    clock: LaunchClock,
    rounds: int = ROUNDS,
    calls: int = CALLS,
    blocks_per_graph: int = BLOCKS_PER_GRAPH,
) -> BlockFigures:
    """Check one block and, if it passed, time `rounds` rounds of `calls` blocks each way.

    Raises:
        ModelError: a sliding window shorter than the cache.
    """
    _check_window(subject)
    reference = reference_output(subject.model, subject.inputs)
    eager = EagerBlock(subject.model, subject.model.model.layers[0], subject.inputs)
    fused = FusedBlock(subject)
    fused.launch(follows=False)
    cosines = cosine(fused.x, reference), cosine(eager.output(), reference)
    ways = _ways(eager, fused, subject.inputs, clock, blocks_per_graph)
    required = REQUIRED_COSINES[dtype]
    if not cosines[0] >= required:
        error = f"cosine {cosines[0]:.8f} to float32 (required: {required}): not timed"
    elif not _graph_repeats_launches(fused, ways):
        error = "a replayed graph gives different results from single launches: not timed"
    else:
        error = None
    return BlockFigures(
        dtype=dtype,
        cache_length=subject.inputs.length,
        fused_cosine=cosines[0],
        eager_cosine=cosines[1],
        required_cosine=required,
        error=error,
        times=None if error else time_ways(ways, clock, rounds, calls),
    )


def time_ways(ways: Mapping[str, Way], clock: LaunchClock, rounds: int, calls: int) -> BlockTimes:
    """Each round times every way once, in turn, so that clock drift affects all of them."""

    def timer(way: Way) -> Timer:
        def read() -> list[float]:
            way.prepare()
            return [clock.mean_ns(way.call, calls // way.blocks) / way.blocks]

        return read

    def contestant(name: str, way: Way) -> Contestant:
        # The blocks were checked together, by their cosines.
        return Contestant(name, Check, lambda: {name: timer(way)})

    outcomes = take_turns([contestant(name, way) for name, way in ways.items()], rounds)
    ns = {name: RoundSpread.of(outcome.readings(name)) for name, outcome in outcomes.items()}
    return BlockTimes(
        eager_ungraphed_ns=ns["eager"],
        eager_graphed_ns=ns["eager+graph"],
        fused_ungraphed_ns=ns["fused"],
        fused_graphed_ns=ns["fused+graph"],
        eager_over_fused_ungraphed=ns["eager"].over(ns["fused"]),
        eager_ungraphed_over_fused_graphed=ns["eager"].over(ns["fused+graph"]),
        eager_over_fused_graphed=ns["eager+graph"].over(ns["fused+graph"]),
    )


def cosine(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Cosine of the angle between two tensors, in float64; the smallest over the sequences."""
    similarity = torch.nn.functional.cosine_similarity(out.double(), reference.double(), dim=-1)
    return float(similarity.min())


def _ways(
    eager: EagerBlock,
    fused: FusedBlock,
    inputs: BlockInputs,
    clock: LaunchClock,
    blocks_per_graph: int,
) -> dict[str, Way]:
    growing, fixed = GrowingCache(inputs), FixedCache(inputs)
    start = inputs.x[:, None].clone()

    def eager_block() -> None:
        eager(start, growing.cache)
        growing.rewind()

    def eager_blocks() -> None:
        x = start
        for _ in range(blocks_per_graph):
            x = eager(x, fixed)

    def fused_blocks() -> None:
        for index in range(blocks_per_graph):
            fused.launch(follows=index > 0)

    rewind, restart = growing.rewind, partial(fused.x.copy_, inputs.x)
    return {
        "eager": Way(eager_block, 1, rewind),
        "eager+graph": Way(clock.capture(eager_blocks), blocks_per_graph, rewind),
        "fused": Way(partial(fused.launch, follows=False), 1, restart),
        "fused+graph": Way(clock.capture(fused_blocks), blocks_per_graph, restart),
    }


def _graph_repeats_launches(block: FusedBlock, ways: Mapping[str, Way]) -> bool:
    """Whether one replay gives the same bits as that many single blocks."""
    single, graphed = ways["fused"], ways["fused+graph"]
    single.prepare()
    for _ in range(graphed.blocks):
        single.call()
    expected = block.x.clone()
    graphed.prepare()
    graphed.call()
    return torch.equal(block.x, expected)


def _check_window(subject: Subject) -> None:
    window, length = subject.parts.layers[0].window, subject.inputs.length
    if window is not None and window <= length:
        raise ModelError(
            f"block: the model's sliding window of {window} is shorter than the "
            f"cache length {length}; lower --context"
        )
