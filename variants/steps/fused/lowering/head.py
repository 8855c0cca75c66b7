"""The head: final norm, lm_head, and the choice of the next token."""

from dataclasses import dataclass

import torch
from msgspec.structs import asdict

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.operation import Launch, Operation
from decodescope.kernels.ops.all_reduce_choice import AllReduceChoice
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.sampling.sample import sample
from decodescope.kernels.sampling.workspace import SamplingWorkspace
from decodescope.variants.parallel.sums import RankSums, choose_by_keys
from decodescope.variants.steps.fused.lowering.builder import StepBuilder
from decodescope.variants.steps.fused.torch_operators import cap_softly, choose_largest


@dataclass(frozen=True, slots=True)
class Sample(Operation):
    """Draws the next tokens: `sample` on these arguments."""

    logits: torch.Tensor
    position: torch.Tensor
    tokens: torch.Tensor
    workspace: SamplingWorkspace
    sampling: SamplingSettings

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        memory = self.logits, self.position, self.tokens, self.workspace
        return sample(*memory, **asdict(self.sampling), pdl=pdl)


def lower_head(builder: StepBuilder, keep_logits: bool) -> None:
    """The operations that end a step. With `keep_logits` the logits stay in their buffer."""
    plan, parts, buffers = builder.plan, builder.plan.parts, builder.buffers
    tile = builder.tiles["head"]
    source = builder.normed("model/final_norm", parts.final_norm, parts.head)
    path = "model/lm_head" if source.norm is None else "model/final_norm+lm_head"
    if not builder.spec.uses("head"):
        builder.linear(path, source, parts.head, buffers.model_logits, tile)
        if parts.logit_cap is not None:
            builder.call(path, cap_softly, buffers.model_logits, parts.logit_cap)
    else:
        greedy = plan.sampling is None
        fused = NormHead(
            source.x,
            source.norm,
            parts.head,
            buffers.tokens,
            buffers.position,
            tile,
            plan.workspace,
            buffers.logits if keep_logits or not greedy else None,
            greedy,
            source.scale,
            parts.dtype,
            parts.logit_cap,
            plan.vocabulary.first,
            plan.sums is None,
        )
        builder.add(path, fused)
    _lower_choice(builder, keep_logits)


def _lower_choice(builder: StepBuilder, keep_logits: bool) -> None:
    """Choose the next tokens from the logits and move the position on, unless the head does."""
    plan, buffers, fused = builder.plan, builder.buffers, builder.spec.uses("head")
    logits = buffers.logits if fused else buffers.model_logits
    if keep_logits and not fused:
        builder.call("sampling", buffers.logits.copy_, buffers.model_logits)
    if plan.sampling is not None:
        assert plan.draws is not None
        if plan.sums is not None:
            builder.call("sampling/all_gather", plan.vocabulary.gather, logits, buffers.all_logits)
            logits = buffers.all_logits
        memory = logits, buffers.position, buffers.tokens, plan.draws
        builder.add("sampling", Sample(*memory, plan.sampling))
    elif not fused:
        choice = plan.vocabulary, logits, buffers.position, buffers.tokens
        builder.call("sampling", choose_largest, *choice)
    elif plan.sums is not None:
        _choose_over_ranks(builder, plan.sums)


def _choose_over_ranks(builder: StepBuilder, sums: RankSums) -> None:
    """Choose among the best keys that the heads of the ranks have left."""
    keys, buffers = builder.plan.workspace.keys, builder.buffers
    if sums.choices is not None:
        memory = keys, buffers.tokens, buffers.position
        builder.add("sampling/all_reduce", AllReduceChoice(*memory, sums.choices.exchange))
    else:
        memory = keys, buffers.position, buffers.tokens
        builder.call("sampling/all_reduce", choose_by_keys, *memory)
