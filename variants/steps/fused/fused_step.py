"""The decode step of the fused variants: our kernels on a static KV cache, launched or replayed."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from subprocess import CalledProcessError

import torch
from triton.errors import TritonError
from triton.runtime.errors import OutOfResources

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.schema.report import Finding
from decodescope.kernels.host.packing import Packing
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.dequantize_rows import DequantizeRows
from decodescope.variants.machine.compile_ahead import compile_reason
from decodescope.variants.model.experts import expert_choices
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.quantized_weights import (
    Convert,
    converting_with,
    quantization_of,
    scaled,
)
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import KvBytes, expected_experts
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.vocabulary import vocabulary_of
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.steps.fused.kv_cache import prefill
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.operations import step_operations, weight_bytes
from decodescope.variants.steps.fused.plan import StepPlan, step_plan, step_workspace
from decodescope.variants.steps.fused.program import StepGraph, StepProgram
from decodescope.variants.steps.fused.rope_tables import rope_tables
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import report_unmeasured, tiles_for
from decodescope.variants.steps.fused.tiling.tiles import interpreter_tiles

# From Triton, from its compiler's passes, and from the driver that loads a kernel.
_RUNTIME_ERRORS = ("Failed to find C", "PassManager::run", "kernel image", "PTX")


def build_fused(
    spec: VariantSpec,
    loaded: LoadedModel,
    workload: DecodeWorkload,
    device: str,
    tiles: StepTiles | None = None,
) -> "FusedStep":
    """The step that `spec` describes, with its kernels compiled and its graph captured.

    Quantises the model's weights in place if `spec` asks for it and nobody has yet, and moves them
    into merged matrices, as `fused_model` says. Without `tiles` it takes those for this model and
    device.

    Raises:
        ModelError: as `quantize_model` and `fused_model`.
        MissingRequirement: a kernel asks too much of the GPU (names the limit) or cannot be
            compiled, or the step cannot be captured as a CUDA graph.
    """
    if (quantization := quantization_of(spec)) is not None:
        quantize_model(loaded.name, loaded.model, quantization)
    parts = fused_model(loaded.model)
    ropes = rope_tables(loaded.model, parts, workload.cache_length)
    findings: tuple[Finding, ...] = ()
    if tiles is None:
        shapes = step_shapes(parts, workload.batch, workload.cache_length, spec)
        if parts.device.type == "cuda":
            gpu = this_target_gpu()
            chosen = tiles_for(shapes, gpu)
            tiles = chosen.tiles
            split = split_of(loaded.model)
            findings = report_unmeasured(chosen, gpu, loaded.name, workload, spec, split)
        else:
            tiles = interpreter_tiles(shapes)
    plan = step_plan(spec, parts, ropes, workload, tiles, vocabulary_of(loaded.model))
    step = FusedStep(loaded, workload, plan, graphed=spec.cuda_graph)
    step.findings = (*findings, *_findings_of_ranks(spec, plan, loaded))
    if device == "cuda":
        step.warm_up()
    return step


def _findings_of_ranks(
    spec: VariantSpec, plan: StepPlan, loaded: LoadedModel
) -> tuple[Finding, ...]:
    if plan.sums is not None:
        return plan.sums.findings
    if vocabulary_of(loaded.model).ranks.alone:
        return ()
    message = f"variant {spec}: the ranks add up nothing, so only its times mean something"
    return (Finding("sums_left_out", message),)


class FusedStep(DecodeStep):
    """A `DecodeStep` that runs the operations of `plan`, as one CUDA graph if `graphed`.

    Tokens and position are on the device, where each step reads what the last one has written; the
    host counts along and never waits. Returned ids are views of the device's token buffer.
    """

    def __init__(
        self, loaded: LoadedModel, workload: DecodeWorkload, plan: StepPlan, graphed: bool = False
    ) -> None:
        super().__init__(loaded, workload, plan.ranges)
        self.plan = plan
        self._graphed = graphed
        # One with the logits kept, for forced steps, and one without; each is made when needed.
        self._programs: dict[bool, StepProgram] = {}
        self.weight_bytes_read = self._weight_bytes(
            [
                expected_experts(each.count, each.chosen, workload.batch) * each.held / each.count
                for each in plan.parts.mixtures
            ]
        )
        element_bytes = plan.cache.k[0].element_size()
        self._kv_bytes = KvBytes(loaded.model.config, workload.batch, element_bytes)

    @property
    def expert_choices(self) -> Callable[[], torch.Tensor] | None:
        return self._expert_choices if self.plan.parts.mixtures else None

    def _expert_choices(self) -> torch.Tensor:
        mixtures, values = self.plan.parts.mixtures, self.plan.buffers.router_logits
        corrections = [each.correction for each in mixtures if each.correction is not None]
        if corrections:
            values = values.sigmoid() + torch.stack(corrections)[:, None]
        return expert_choices(values, mixtures[0].chosen)

    def chosen_weight_bytes(self) -> int:
        if self.expert_choices is None:
            return self.weight_bytes_read
        mixture = self.plan.parts.mixtures[0]
        own = self.expert_choices()[:, mixture.first : mixture.first + mixture.held]
        return self._weight_bytes((own > 0).sum(dim=1).tolist())

    def _weight_bytes(self, used: Sequence[Fraction | int]) -> int:
        """Bytes of weights of a step whose tokens use so many experts in each layer with some."""
        total = Fraction(weight_bytes(step_operations(self.plan)))
        for mixture, experts in zip(self.plan.parts.mixtures, used, strict=True):
            counted = min(mixture.held, self._workload.batch * mixture.chosen)
            size = sum(matrix.bytes_read for matrix in mixture.matrices)
            total -= (counted - experts) * Fraction(size, mixture.held)
        return int(total)

    def kv_bytes_read(self, position: int) -> int:
        """Bytes of K and V, and of their scales, that a step at cache length `position` reads."""
        scales = [scale for layer in self.plan.cache.all_scales for scale in layer]
        return super().kv_bytes_read(position) + sum(scale.nbytes for scale in scales)

    def warm_up(self) -> None:
        """Compile the kernels and capture the graph, on meaningless tokens."""
        self.plan.buffers.tokens.zero_()
        self.plan.buffers.position.zero_()
        self._run(keep_logits=False)

    def with_tiles(self, tiles: StepTiles) -> "FusedStep":
        """The same step with other tiles and without a graph; it shares model, cache and buffers.

        Give a prompt to whichever of the two goes on.
        """
        device = self.plan.parts.device
        workspace = step_workspace(self.plan.parts, self._workload.batch, tiles, device)
        plan = replace(self.plan, tiles=tiles, workspace=workspace)
        return FusedStep(self._loaded, self._workload, plan)

    def launch_at(self, position: int) -> None:
        """Launch a step at any `position` of the cache, for a caller that only times it.

        Steps without their own CUDA graph can be captured. Each replay then decodes at the captured
        position. The step must be given a prompt again before it goes on.
        """
        self.plan.buffers.position.fill_(position)
        self._program(keep_logits=False).run()

    def ungraphed(self) -> "FusedStep | None":
        """The same plan, launch by launch; None of a step without graphs."""
        if not self._graphed:
            return None
        return FusedStep(self._loaded, self._workload, self.plan)

    def node_paths(self) -> dict[int, str]:
        programs = self._programs.values()
        return {node: path for program in programs for node, path in program.node_paths.items()}

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self._require_all_ranks()
        buffers, context = self.plan.buffers, self._workload.context
        prompt, first = buffers.tokens[:, :context], buffers.tokens[:, context]
        prompt.copy_(ids)
        with converting_with(weights_on(prompt.device), self._model):
            logits = prefill(self._model, prompt, self.plan.cache)
        first.copy_(self._choose(logits, context - 1))
        buffers.position.fill_(context)
        return first

    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """With a graph, the first forced step captures a second one, which keeps the logits."""
        self._require_all_ranks()
        buffers = self.plan.buffers
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
        self._require_all_ranks()
        self.plan.buffers.position.fill_(position)

    def _require_all_ranks(self) -> None:
        if self.plan.sums is not None:
            self.plan.sums.require_all()

    def _run(self, keep_logits: bool) -> None:
        sums, is_new = self.plan.sums, keep_logits not in self._programs
        try:
            with sums.built_together() if sums is not None and is_new else nullcontext():
                self._program(keep_logits).run()
        except Exception as error:
            failure = compile_failure(self.plan.spec, error)
            if failure is None:
                raise
            raise failure from error

    def _program(self, keep_logits: bool) -> StepProgram:
        if keep_logits not in self._programs:
            plan = self.plan
            operations = step_operations(plan, keep_logits)
            if self._graphed:
                program: StepProgram = StepGraph(operations, plan.ranges, plan.pdl, str(plan.spec))
            else:
                program = StepProgram(operations, plan.ranges, plan.pdl)
            self._programs[keep_logits] = program
        return self._programs[keep_logits]


def weights_on(device: torch.device) -> Convert:
    """The kernel on a GPU; PyTorch on the CPU, where Triton's interpreter would take seconds for
    each matrix. Both give the same bits."""
    return dequantized if device.type == "cuda" else scaled


def dequantized(
    data: torch.Tensor,
    scale: torch.Tensor | None,
    dtype: torch.dtype,
    packing: Packing | None = None,
) -> torch.Tensor:
    """data * scale in `dtype`, as `scaled`."""
    scales = None if scale is None else scale.flatten()
    matrix = WeightMatrix(data.flatten(0, -2), scales, packing=packing)
    out = torch.empty(matrix.rows, matrix.columns, dtype=dtype, device=data.device)
    DequantizeRows(matrix, out).launch()
    return out.view(*data.shape[:-1], matrix.columns)


def compile_failure(spec: VariantSpec, error: Exception) -> MissingRequirement | None:
    """The error to report if a launch failed because of this machine or its Triton; else None."""
    if isinstance(error, OutOfResources):
        return MissingRequirement(
            f"variant {spec}: one of its kernels needs {error.required} of the GPU's {error.name}, "
            f"but a program can have only {error.limit}; choose another variant"
        )
    if isinstance(error, RuntimeError):
        if not any(words in str(error) for words in _RUNTIME_ERRORS):
            return None
    elif not isinstance(error, (TritonError, CalledProcessError, OSError)):
        return None
    if isinstance(error, CalledProcessError):
        reason = f"{error.cmd[0]} ended with exit code {error.returncode}"
    else:
        reason = compile_reason(error)
    return MissingRequirement(
        f"variant {spec}: its kernels cannot be compiled here ({reason}); check that "
        "Triton has a C compiler, Python's headers and a folder to write to, or choose another "
        "variant"
    )
