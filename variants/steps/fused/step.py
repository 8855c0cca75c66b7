"""The fused variants' decode step: our kernels on a static KV cache, launched or replayed."""

from dataclasses import replace

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.sampling.workspace import new_sampling_workspace
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.buffers import new_buffers, step_workspace
from decodescope.variants.steps.fused.compile_failure import compile_failure
from decodescope.variants.steps.fused.graph import StepGraphs
from decodescope.variants.steps.fused.kv_cache import new_kv_cache, prefill
from decodescope.variants.steps.fused.launches import launch_step
from decodescope.variants.steps.fused.model_parts import FusedModel, fused_model
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import StepProgram
from decodescope.variants.steps.fused.rope_tables import rope_table
from decodescope.variants.steps.fused.static_attention import VisibleRows
from decodescope.variants.steps.fused.tiling.choice import tiles_for
from decodescope.variants.steps.fused.tiling.hint import tell_unmeasured
from decodescope.variants.steps.fused.tiling.rules import StepTiles, interpreter_tiles, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.step import DecodeStep


def build_fused(
    spec: VariantSpec,
    loaded: LoadedModel,
    workload: DecodeWorkload,
    device: str,
    tiles: StepTiles | None = None,
) -> "FusedStep":
    """The step that `spec` describes, with its kernels compiled and its graph captured.

    Moves the model's weights into merged matrices, as `fused_model` says. Without `tiles` it takes
    those for this model and device.

    Raises:
        MissingRequirement: a kernel asks too much of the GPU (names the limit) or cannot be
            compiled, or the step cannot be captured as a CUDA graph.
    """
    parts = fused_model(loaded.model)
    plan = step_plan(spec, loaded, parts, workload, tiles or _tiles(loaded.name, parts, workload))
    step = FusedStep(loaded, workload, plan, StepGraphs(plan) if spec.cuda_graph else None)
    if device == "cuda":
        step.warm_up()
    return step


def step_plan(
    spec: VariantSpec,
    loaded: LoadedModel,
    parts: FusedModel,
    workload: DecodeWorkload,
    tiles: StepTiles,
) -> StepPlan:
    """A plan with a cache and buffers of its own for this workload."""
    device = parts.embedding.device
    capacity = workload.cache_length
    overlaps = can_overlap(device)
    return StepPlan(
        spec=spec,
        parts=parts,
        cache=new_kv_cache(parts, workload.batch, capacity, device),
        rope=rope_table(loaded.model, capacity, device),
        buffers=new_buffers(parts, workload.batch, capacity),
        tiles=tiles,
        workspace=step_workspace(parts, workload.batch, tiles),
        visible=VisibleRows({layer.window for layer in parts.layers}, capacity, device),
        ranges=LayerRanges(None),
        pdl=overlaps and spec.uses("pdl"),
        prefetch=overlaps and spec.prefetch,
        sampling=workload.sampling,
        draws=None if workload.sampling is None else new_sampling_workspace(workload.batch, device),
    )


class FusedStep(DecodeStep):
    """A `DecodeStep` that launches `plan` one by one, or replays `graphs` of it.

    Tokens and position live on the device, where each step reads what the one before has written;
    the host counts along and never waits. Returned ids are views of the device's token buffer.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        plan: StepPlan,
        graphs: StepGraphs | None = None,
    ) -> None:
        super().__init__(loaded, workload, plan.ranges)
        self._plan = plan
        self._graphs = graphs
        self._programs: dict[bool, StepProgram] = {}

    @property
    def plan(self) -> StepPlan:
        """What the step launches."""
        return self._plan

    def warm_up(self) -> None:
        """Compile the kernels and capture the graph, on tokens that mean nothing."""
        self._plan.buffers.tokens.zero_()
        self._plan.buffers.position.zero_()
        self._run(keep_logits=False)

    def with_tiles(self, tiles: StepTiles) -> "FusedStep":
        """The same step with other tiles, launched one by one; it shares model, cache and buffers.

        Of the two, the one that is to go on must be given a prompt again.
        """
        workspace = step_workspace(self._plan.parts, self._workload.batch, tiles)
        plan = replace(self._plan, tiles=tiles, workspace=workspace)
        return FusedStep(self._loaded, self._workload, plan)

    def launch_at(self, position: int) -> None:
        """Launch a step at any `position` of the cache, for a caller that only times launches.

        May be captured in a CUDA graph, which then decodes at that position in every replay. The
        step must be given a prompt again before it goes on.
        """
        self._plan.buffers.position.fill_(position)
        launch_step(self._plan, keep_logits=False)

    def ungraphed(self) -> "FusedStep | None":
        """The same plan, launch by launch; None of a step without graphs."""
        if self._graphs is None:
            return None
        return FusedStep(self._loaded, self._workload, self._plan)

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        buffers, context = self._plan.buffers, self._workload.context
        prompt, first = buffers.tokens[:, :context], buffers.tokens[:, context]
        prompt.copy_(ids)
        logits = prefill(self._model, prompt, self._plan.cache)
        first.copy_(self._choose(logits, context - 1))
        buffers.position.fill_(context)
        return first

    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode the ids in the token buffer, where the last step has left them.

        A step with a graph captures a second one, which keeps the logits, at its first forced step.
        """
        buffers = self._plan.buffers
        if forced:
            buffers.tokens[:, self.position].copy_(ids)
        try:
            self._run(keep_logits=forced)
        except (torch.OutOfMemoryError, MissingRequirement):
            # A capture fails after the step was launched, which moved the device's position on.
            buffers.position.fill_(self.position)
            raise
        return buffers.tokens[:, self.position + 1], buffers.logits

    def _rewind(self, position: int) -> None:
        """Set the position back; later rows of the cache are not seen, then overwritten."""
        self._plan.buffers.position.fill_(position)

    def _run(self, keep_logits: bool) -> None:
        try:
            self._launch(keep_logits)
        except Exception as error:
            told = compile_failure(self._plan.spec, error)
            if told is None:
                raise
            raise told from error

    def _launch(self, keep_logits: bool) -> None:
        if self._graphs is not None:
            self._graphs.run(keep_logits)
            return
        program = self._programs.get(keep_logits)
        if program is not None and program.repeatable:
            program.repeat()
        else:
            self._programs[keep_logits] = launch_step(self._plan, keep_logits)


def _tiles(name: str, parts: FusedModel, workload: DecodeWorkload) -> StepTiles:
    shapes = step_shapes(parts, workload.batch, workload.cache_length)
    if parts.embedding.device.type != "cuda":
        return interpreter_tiles(shapes)
    gpu = this_target_gpu()
    chosen = tiles_for(shapes, gpu)
    tell_unmeasured(chosen, gpu, name, workload)
    return chosen.tiles
