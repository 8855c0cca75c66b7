"""Scores variants against fp32: each decodes one text, and so do the loaded weights upcast.

The figures are the differences between two sets of logits: the formulas of `run_report.Accuracy`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from msgspec.structs import asdict
from torch import nn

from decodescope.analyzer.errors import DecodescopeError, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy
from decodescope.variants.comparing.accuracy_text import (
    INTERPRETED_POSITIONS,
    POSITIONS,
    ScoredText,
    scored_text,
)
from decodescope.variants.comparing.jobs import ACCURACY_MISSING, AccuracyDone
from decodescope.variants.machine.child_process import failure_of
from decodescope.variants.machine.memory import free_memory, memory_errors
from decodescope.variants.measuring.preparation import Prepared, prepare, require_weights
from decodescope.variants.model.quantized_weights import Quantization, quantization_of
from decodescope.variants.registry import build_variant, find_variant, is_interpreted
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.steps.eager_step import EagerStep

# Rows converted to float64 at a time: 20 MB a tensor with a vocabulary of 150,000.
_ROWS = 16


def score_variants(
    config: WorkerConfig, variants: Sequence[str], text: str | None, say: Callable[[str], None]
) -> AccuracyDone:
    """The accuracy of `variants` on `text` (see `scored_text` for None).

    The KV cache is as long as the workload's, if that is enough for the text: its length decides on
    tiles and on what torch.compile generates, so the kernels that are scored are those of the runs.

    The model is loaded in the workload's dtype. First come the variants that use its weights as
    they are, then the fp32 reference, for which the same weights are upcast in place and cast back,
    then those that quantise them: all but the first such format load the model again. Each variant
    is freed before the next is built. A variant that fails and a reference that does not fit in
    memory each add a finding.

    Raises:
        InputError, ModelError, MissingRequirement: as `prepare` and `scored_text`.
    """
    prepared = prepare(config, say)
    interpreted = any(is_interpreted(name, prepared.device) for name in variants)
    positions = INTERPRETED_POSITIONS if interpreted else POSITIONS
    scored = scored_text(prepared.loaded, text, positions)
    workload = replace(
        prepared.workload,
        context=scored.context,
        new_tokens=max(scored.positions, prepared.workload.cache_length - scored.context),
        sampling=None,
    )
    scores = _Scores(replace(prepared, workload=workload), scored, say)
    groups = _by_weights(variants)
    scores.score(groups.pop(None, []))
    if scores.logits or groups:
        scores.score_reference()
    for names in groups.values() if scores.reference is not None else ():
        scores.score(names)
    accuracies: dict[str, Accuracy] = {}
    findings = [*prepared.loaded.findings]
    if prepared.loaded.weights == "random":
        message = (
            f"the weights of {prepared.loaded.name} are random: errors and agreement compare "
            "computations, perplexity says nothing about text"
        )
        findings.append(Finding("random_weights", message))
    for variant in variants:
        try:
            accuracies[variant] = scores.accuracy(variant)
        except DecodescopeError as error:
            findings.append(Finding(ACCURACY_MISSING, f"no accuracy of {variant}: {error}"))
    return AccuracyDone(accuracies, tuple(findings))


def forced_logits(step: DecodeStep, scored: ScoredText, batch: int) -> torch.Tensor:
    """Logits of the first of `batch` equal sequences, fp32 [positions, vocabulary], on the CPU.

    The prompt is prefilled, then `step` decodes the text's own tokens instead of its choices.
    """
    prompt = scored.ids[: scored.context].expand(batch, -1).contiguous()
    ids = scored.ids.to(step.prefill(prompt).device)
    rows: list[torch.Tensor] = []
    for position in range(scored.context, scored.context + scored.positions):
        row = step.forced_step(ids[position].expand(batch).contiguous())[0]
        rows.append(row.to("cpu", torch.float32, copy=True))
    return torch.stack(rows)


@dataclass
class _Scores:
    """The logits of each variant so far, and of the reference, or why one has none."""

    prepared: Prepared
    scored: ScoredText
    say: Callable[[str], None]
    logits: dict[str, torch.Tensor] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    reference: torch.Tensor | None = None
    no_reference: str = ""

    def score(self, variants: Sequence[str]) -> None:
        """Decode with `variants`, which store the weights in the same way."""
        for variant in variants:
            self.say(f"scoring {variant} on {self.scored.name}")
            try:
                self.logits[variant] = self._variant_logits(variant)
            except Exception as error:  # one variant's failure must not lose the others
                self.missing[variant] = failure_of(error).message
            free_memory(self.prepared.device)

    def score_reference(self) -> None:
        """Decode with the weights that were loaded, in fp32."""
        self.say("scoring the fp32 reference")
        try:
            self.reference = _reference_logits(self.prepared, self.scored)
        except DecodescopeError as error:
            self.no_reference = f"no fp32 reference: {error}"

    def accuracy(self, variant: str) -> Accuracy:
        """The accuracy of a variant.

        Raises:
            DecodescopeError: it has none, for this reason.
        """
        if self.reference is None or variant in self.missing:
            raise ModelError(self.missing.get(variant) or self.no_reference)
        logits, scored = self.logits[variant], self.scored
        name = f"eager on {self.prepared.device}, the loaded weights in fp32 without TF32"
        accuracy = accuracy_of(logits, self.reference, scored.next_ids, name, scored.name)
        if bad := unusable(accuracy):
            broken = int((~logits.isfinite().all(-1)).sum())
            where = f"logits are NaN or infinite at {broken} of {len(logits)} positions"
            raise ModelError(f"{', '.join(bad)}; {where}")
        return accuracy

    def _variant_logits(self, variant: str) -> torch.Tensor:
        self.prepared = prepared = require_weights(self.prepared, variant, self.say)
        step = build_variant(variant, prepared.loaded, prepared.workload, prepared.device)
        with memory_errors(f"scoring variant {variant}", prepared.device):
            return forced_logits(step, self.scored, prepared.workload.batch)


def _by_weights(variants: Sequence[str]) -> dict[Quantization | None, list[str]]:
    """Variants that store the weights in the same way, together."""
    groups: dict[Quantization | None, list[str]] = {}
    for variant in variants:
        groups.setdefault(quantization_of(find_variant(variant).spec), []).append(variant)
    return groups


def _reference_logits(prepared: Prepared, scored: ScoredText) -> torch.Tensor:
    model, workload = prepared.loaded.model, replace(prepared.workload, dtype="fp32")
    with (
        memory_errors("computing the fp32 reference", prepared.device),
        _without_tf32(),
        _in_fp32(model),
    ):
        return forced_logits(EagerStep(prepared.loaded, workload), scored, workload.batch)


@contextmanager
def _in_fp32(model: nn.Module) -> Iterator[None]:
    """Upcast the model in place, and cast it back: fp32 holds every weight exactly."""
    dtypes = [(parameter, parameter.dtype) for parameter in model.parameters()]
    buffers = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        model.float()
        yield
    finally:
        for parameter, dtype in dtypes:
            parameter.data = parameter.data.to(dtype)
        for module, name, buffer in buffers:
            setattr(module, name, buffer)


@contextmanager
def _without_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


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
    exp(mean of -ln Q[i]), perplexity_ratio = that / exp(mean of -ln P[i]).
    Logits that are not finite, or too large, give figures that are NaN or infinite.

    Raises:
        ModelError: the shapes differ.
    """
    if logits.shape != reference.shape:
        raise ModelError(
            f"gave logits of shape {list(logits.shape)}, the reference {list(reference.shape)}"
        )
    sums = torch.zeros(5, dtype=torch.float64)
    kl_by_position: list[float] = []
    for first in range(0, len(logits), _ROWS):
        rows = slice(first, first + _ROWS)
        block_sums, kl = _scored(logits[rows].double(), reference[rows].double(), next_ids[rows])
        sums += block_sums
        kl_by_position += kl.tolist()
    difference, norm, agreed, loss, reference_loss = sums.tolist()
    positions = len(logits)
    return Accuracy(
        reference=reference_name,
        text=text_name,
        positions=positions,
        logit_rel_error=math.sqrt(difference / norm) if norm else math.nan,
        kl=sum(kl_by_position) / positions,
        top1_agreement=agreed / positions,
        perplexity=_exp(loss / positions),
        perplexity_ratio=_exp((loss - reference_loss) / positions),
        kl_by_position=tuple(kl_by_position),
    )


def unusable(accuracy: Accuracy) -> list[str]:
    """The figures of `accuracy` that JSON cannot hold (NaN or infinite), as "name value"."""
    figures = asdict(accuracy).items()
    return [f"{name} {x}" for name, x in figures if isinstance(x, float) and not math.isfinite(x)]


def _scored(
    logits: torch.Tensor, reference: torch.Tensor, next_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums over rows that the figures are made of, and the KL of each row."""
    log_q, log_p = logits.log_softmax(-1), reference.log_softmax(-1)
    at_next = next_ids[:, None]
    sums = torch.stack(
        [
            (logits - reference).square().sum(),
            reference.square().sum(),
            (logits.argmax(-1) == reference.argmax(-1)).sum().double(),
            -log_q.gather(-1, at_next).sum(),
            -log_p.gather(-1, at_next).sum(),
        ]
    )
    return sums, (log_p.exp() * (log_p - log_q)).sum(-1)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
