"""Scores variants against fp32: each decodes one text, and so do the loaded weights upcast."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from msgspec.structs import asdict
from torch import nn

from decodescope.analyzer.comparing.accuracy_intervals import PositionScores, with_intervals
from decodescope.analyzer.errors import DecodescopeError, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy
from decodescope.variants.comparing.accuracy_text import (
    INTERPRETED_POSITIONS,
    SEQUENCES,
    ScoredText,
    scored_text,
)
from decodescope.variants.comparing.job_process import ACCURACY_MISSING, AccuracyDone
from decodescope.variants.machine.child_process import failure_of
from decodescope.variants.machine.memory import free_memory, memory_errors
from decodescope.variants.measuring.preparation import Prepared, prepare, require_weights
from decodescope.variants.model.quantized_weights import Quantization, quantization_of
from decodescope.variants.model.workload_costs import model_bytes
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.registry import build_variant, find_variant, is_interpreted
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.steps.eager_step import EagerStep

# Rows converted to float64 at a time: 20 MB a tensor with a vocabulary of 150,000.
_ROWS = 16
# Of larger models a step takes up to a second on a CPU, and 50 ms in eager mode on a GPU.
_SMALL_MODEL_BYTES = 100_000_000
_SEQUENCES_OF_LARGE_MODELS = {"cpu": 1, "cuda": 2}


def score_variants(
    config: WorkerConfig,
    variants: Sequence[str],
    text: str | None,
    say: Callable[[str], None],
    ranks: Ranks = ALONE,
) -> AccuracyDone:
    """The accuracy of `variants` on `text` (see `scored_text` for None), which all `ranks` decode.

    The KV cache is as long as the workload's, if that is enough for the text: its length decides on
    tiles and on what torch.compile generates, so the kernels that are scored are those of the runs.

    The model is loaded in the workload's dtype. First comes the fp32 reference, for which the
    weights are upcast in place and cast back, then the variants that use the weights as they are,
    then those that quantise them: all but the first such format load the model again. Each variant
    is freed before the next is built. A variant that fails and a reference that does not fit in
    memory each add a finding.

    Raises:
        InputError, ModelError, MissingRequirement: as `prepare` and `scored_text`.
    """
    prepared = prepare(config, say, ranks)
    scored = _chosen_text(prepared, variants, text)
    workload = replace(
        prepared.workload,
        context=scored.context,
        new_tokens=max(scored.positions, prepared.workload.cache_length - scored.context),
        sampling=None,
    )
    scores = _Scores(replace(prepared, workload=workload), scored, say)
    scores.score(variants)
    findings = [*prepared.loaded.findings]
    if prepared.loaded.weights == "random":
        message = (
            f"the weights of {prepared.loaded.name} are random: errors and agreement compare "
            "computations, perplexity says nothing about text"
        )
        findings.append(Finding("random_weights", message))
    for variant in variants:
        if (reason := scores.missing.get(variant)) is not None:
            findings.append(Finding(ACCURACY_MISSING, f"no accuracy of {variant}: {reason}"))
    accuracies = {name: scores.accuracies[name] for name in variants if name in scores.accuracies}
    return AccuracyDone(accuracies, tuple(findings))


def _chosen_text(prepared: Prepared, variants: Sequence[str], text: str | None) -> ScoredText:
    """As many positions as there is time for: few sequences where a step takes long."""
    if any(is_interpreted(name, prepared.device) for name in variants):
        return scored_text(prepared.loaded, text, 1, INTERPRETED_POSITIONS)
    is_small = model_bytes(prepared.loaded.model) <= _SMALL_MODEL_BYTES
    sequences = SEQUENCES if is_small else _SEQUENCES_OF_LARGE_MODELS[prepared.device]
    return scored_text(prepared.loaded, text, sequences)


def forced_logits(step: DecodeStep, scored: ScoredText, batch: int) -> torch.Tensor:
    """Logits of all positions in the order of the text, fp32 [sequences * positions, vocabulary],
    on the CPU.

    `batch` sequences at a time (the last one several times, where fewer are left): the prompts are
    prefilled, then `step` decodes the text's own tokens instead of its choices.
    """
    parts: list[torch.Tensor] = []
    for ids in torch.split(scored.ids, batch):
        rows = torch.arange(batch).clamp(max=len(ids) - 1)
        prompt = ids[rows, : scored.context].contiguous()
        fed = ids[rows].T.contiguous().to(step.prefill(prompt).device)
        logits = [
            step.forced_step(fed[place])[: len(ids)].to("cpu", torch.float32, copy=True)
            for place in range(scored.context, scored.context + scored.positions)
        ]
        parts.append(torch.stack(logits, 1).flatten(0, 1))
    return torch.cat(parts)


@dataclass
class _Scores:
    """The accuracy of each variant so far, or why one has none."""

    prepared: Prepared
    scored: ScoredText
    say: Callable[[str], None]
    accuracies: dict[str, Accuracy] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def score(self, variants: Sequence[str]) -> None:
        """Score `variants` against the weights that were loaded, in fp32."""
        self.say("scoring the fp32 reference")
        loaded, device = self.prepared.loaded, self.prepared.device
        workload = replace(self.prepared.workload, dtype="fp32")
        try:
            with memory_errors("computing the fp32 reference", device), _in_fp32(loaded.model):
                step = EagerStep(loaded, workload)
                reference = forced_logits(step, self.scored, workload.batch)
        except DecodescopeError as error:
            if not loaded.ranks.alone:
                raise
            self.missing = dict.fromkeys(variants, f"no fp32 reference: {error}")
            return
        for variant in _in_order_of_weights(variants):
            self.say(f"scoring {variant} on {self.scored.name}")
            try:
                self.accuracies[variant] = self._scored(variant, reference)
            except Exception as error:  # one variant's failure must not lose the others
                if not self.prepared.loaded.ranks.alone:
                    # The other ranks may wait for this one.
                    raise
                self.missing[variant] = failure_of(error).message
            free_memory(self.prepared.device)

    def _scored(self, variant: str, reference: torch.Tensor) -> Accuracy:
        self.prepared = prepared = require_weights(self.prepared, variant, self.say)
        step = build_variant(variant, prepared.loaded, prepared.workload, prepared.device)
        with memory_errors(f"scoring variant {variant}", prepared.device):
            logits = forced_logits(step, self.scored, prepared.workload.batch)
        name = f"eager on {prepared.device}, the loaded weights in fp32 without TF32"
        next_ids = self.scored.next_ids
        accuracy = accuracy_of(logits, reference, next_ids, name, self.scored.name)
        if bad := unusable(accuracy):
            broken = int((~logits.isfinite().all(-1)).sum())
            where = f"logits are NaN or infinite at {broken} of {len(logits)} positions"
            raise ModelError(f"{', '.join(bad)}; {where}")
        return accuracy


def _in_order_of_weights(variants: Sequence[str]) -> list[str]:
    """Variants that store the weights in the same way, together; those as loaded come first, and
    among them those that leave the matrices where they were loaded, as the reference does: a packed
    matrix has another alignment, from which a BLAS rounds otherwise."""
    groups: dict[Quantization | None, list[str]] = {None: []}
    specs = {variant: find_variant(variant).spec for variant in variants}
    for variant in sorted(variants, key=lambda variant: specs[variant] is not None):
        groups.setdefault(quantization_of(specs[variant]), []).append(variant)
    return list(chain.from_iterable(groups.values()))


@contextmanager
def _in_fp32(model: nn.Module) -> Iterator[None]:
    """Upcast the model in place, without TF32, and cast it back: fp32 holds all weights exactly."""
    precision = torch.get_float32_matmul_precision()
    dtypes = [(parameter, parameter.dtype) for parameter in model.parameters()]
    buffers = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        torch.set_float32_matmul_precision("highest")
        model.float()
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for parameter, dtype in dtypes:
            parameter.data = parameter.data.to(dtype)
        for module, name, buffer in buffers:
            setattr(module, name, buffer)


def accuracy_of(
    logits: torch.Tensor,
    reference: torch.Tensor,
    next_ids: torch.Tensor,
    reference_name: str,
    text_name: str,
) -> Accuracy:
    """Score `logits` [positions, vocabulary] against `reference` of the same shape, in float64.

    `next_ids` [positions] are the text's own next tokens. With P and Q the row-wise softmax of
    reference and logits, and i the row's next token:
    logit_rel_error = ||logits - reference|| / ||reference|| (Frobenius), kl = mean of
    sum P (ln P - ln Q), top1_agreement = share of rows with equal argmax, perplexity =
    exp(mean of -ln Q[i]), perplexity_ratio = that / exp(mean of -ln P[i]). `with_intervals` adds
    the intervals.
    Logits that are not finite, or too large, give figures that are NaN or infinite.

    Raises:
        ModelError: the shapes differ.
    """
    if logits.shape != reference.shape:
        raise ModelError(
            f"gave logits of shape {list(logits.shape)}, the reference {list(reference.shape)}"
        )
    parts = (torch.split(each, _ROWS) for each in (logits, reference, next_ids))
    by_position = torch.cat([_scored(*rows) for rows in zip(*parts, strict=True)], 1)
    positions = len(logits)
    difference, norm, loss, reference_loss, kl, agrees = by_position.sum(1).tolist()
    log_ratio = by_position[2] - by_position[3]
    accuracy = Accuracy(
        reference=reference_name,
        text=text_name,
        positions=positions,
        logit_rel_error=math.sqrt(difference / norm) if norm else math.nan,
        kl=kl / positions,
        top1_agreement=agrees / positions,
        perplexity=_exp(loss / positions),
        perplexity_ratio=_exp((loss - reference_loss) / positions),
    )
    return with_intervals(accuracy, PositionScores(log_ratio.numpy(), *by_position[4:].numpy()))


def unusable(accuracy: Accuracy) -> list[str]:
    """The figures of `accuracy` that JSON cannot hold (NaN or infinite), as "name value"."""
    figures = asdict(accuracy).items()
    return [f"{name} {x}" for name, x in figures if isinstance(x, float) and not math.isfinite(x)]


def _scored(logits: torch.Tensor, reference: torch.Tensor, next_ids: torch.Tensor) -> torch.Tensor:
    """Of each row ||logits - reference||^2, ||reference||^2, -ln Q[i], -ln P[i], KL and whether the
    argmax is equal, float64 [6, rows]."""
    logits, reference = logits.double(), reference.double()
    log_q, log_p = logits.log_softmax(-1), reference.log_softmax(-1)
    at_next = next_ids[:, None]
    return torch.stack(
        [
            (logits - reference).square().sum(-1),
            reference.square().sum(-1),
            -log_q.gather(-1, at_next).squeeze(-1),
            -log_p.gather(-1, at_next).squeeze(-1),
            (log_p.exp() * (log_p - log_q)).sum(-1),
            (logits.argmax(-1) == reference.argmax(-1)).double(),
        ]
    )


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
