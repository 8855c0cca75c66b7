"""`tune`: finds the tiles of a model's fused step on this GPU and keeps them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.model.checkpoint import broken_checkpoint
from decodescope.variants.model.loading import LoadedModel, check_fits, loaded_model
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.skeleton import find_files, torch_dtype
from decodescope.variants.model.source import ModelSource, resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import FusedStep, build_fused
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.support import require_support
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import keep_tiles, tiles_by_key, tiles_for
from decodescope.variants.steps.fused.tiling.tuner import REPLAYS, LaunchWith, tune_model
from decodescope.variants.tuning.report import SCHEMA_VERSION, RoundSpread, TuningReport

ROUNDS = 9


def run_tuning(
    model: str,
    workload: DecodeWorkload,
    spec: VariantSpec,
    tp: int,
    ep: bool,
    say: Callable[[str], None],
) -> TuningReport:
    """Tune the fused step of `model` in the middle of `workload` and keep the tiles for later runs.

    `spec` says how weights, K and V are stored: tiles depend on the size of their elements. Of `tp`
    ranks, the part of the first is tuned alone, without the sums over the ranks.

    Operations whose tile is measured already keep it, unless all are: then all are
    measured again. No weights are loaded: they are random numbers of the model's shapes. Needs what
    `require_gpu` checks.

    Raises:
        MissingRequirement: model not found, out of GPU memory.
        ModelError: a model that the fused kernels cannot run, that the ranks do not divide, or with
            too few positions.
        InputError: a batch that they cannot run.
    """
    source = resolve_model(model)
    say(f"building {model} with random weights")
    if tp > 1:
        spec = replace(spec, all_reduce="none")
    loaded = random_model(source, workload, "cuda", spec, Ranks(0, tp), ep)
    parts, gpu = fused_model(loaded.model), this_target_gpu()
    shapes = step_shapes(parts, workload.batch, workload.cache_length, spec)
    start = tiles_for(shapes, gpu)
    operations = start.unmeasured or shapes.operations
    measured = [name for name in shapes.operations if name not in operations]
    if measured:
        say(f"measured before: {', '.join(measured)}")
    position = workload.context + workload.new_tokens // 2
    with memory_errors("tuning tiles", "cuda"):
        step = build_fused(spec, loaded, workload, "cuda", start.tiles)
        launch_with = launches_of(step, position)
        tiles, passes = tune_model(launch_with, start.tiles, operations, shapes, gpu, say)
        say("measuring the step before and after")
        before_ns, after_ns = time_both(launch_with, start.tiles, tiles, DeviceClock())
    kept_in = keep_tiles(gpu, tiles_by_key(shapes, tiles, operations), cache_folder())
    if kept_in is not None:
        say(f"kept for later runs in {kept_in}")
    return TuningReport(
        schema_version=SCHEMA_VERSION,
        model=model,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        tokens=workload.new_tokens,
        position=position,
        replays=REPLAYS,
        tile_sources=dict(start.sources),
        tiles=tiles,
        passes=passes,
        before_ns=before_ns,
        after_ns=after_ns,
        before_over_after=before_ns.over(after_ns),
        environment=environment(),
        variant=str(spec.formats),
        tp=tp,
        ep=ep,
    )


@torch.no_grad()
def launches_of(step: FusedStep, position: int) -> LaunchWith:
    """A function that launches `step` with given tiles at `position`, on a random KV cache."""
    # PyTorch draws no float8.
    drawn = torch.float16 if step.plan.spec.kv_format else step.plan.parts.dtype
    for layer in (*step.plan.cache.k, *step.plan.cache.v):
        layer.copy_(torch.empty_like(layer, dtype=drawn).normal_())
    return lambda tiles: partial(step.with_tiles(tiles).launch_at, position)


def time_both(
    launch_with: LaunchWith, before: StepTiles, after: StepTiles, clock: DeviceClock
) -> tuple[RoundSpread, RoundSpread]:
    """Nanoseconds of the step with both tiles; each round times them in turn."""
    steps = [clock.capture(launch_with(tiles)) for tiles in (before, after)]
    rounds = [[median(clock.each_ns(step, REPLAYS)) for step in steps] for _ in range(ROUNDS)]
    first, last = zip(*rounds, strict=True)
    return RoundSpread.of(first), RoundSpread.of(last)


def random_model(
    source: ModelSource,
    workload: DecodeWorkload,
    device: str,
    spec: VariantSpec,
    ranks: Ranks = ALONE,
    ep: bool = False,
) -> LoadedModel:
    """`source`, or the part of one of several `ranks`, with random weights on `device`, stored as
    `spec` says; fetches only config.json of a hub model.

    Raises:
        ModelError: unreadable files, a model that the fused kernels cannot run, or one with fewer
            positions than the workload needs.
        InputError: a batch that the fused kernels cannot run.
        MissingRequirement: model not found, no Triton, a GPU that is too old, or GPU memory ran
            out.
    """
    fields = find_files(source).config
    require_support(source.name, fields, workload.batch, device, spec)
    with memory_errors(f"building {source.name} in {workload.dtype}", device):
        with broken_checkpoint(source.name):
            model = build_random(fields, device, torch_dtype(workload.dtype), ranks, ep)
        loaded = loaded_model(model, None, "random", source.name)
        if (quantization := quantization_of(spec)) is not None:
            quantize_model(source.name, model, quantization)
    check_fits(loaded, workload)
    return loaded
