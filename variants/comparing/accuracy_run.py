"""Scores variants against fp32: each decodes one text, and so do the same weights upcast."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy
from decodescope.variants.comparing.accuracy import accuracy_of, unusable
from decodescope.variants.comparing.accuracy_text import (
    INTERPRETED_POSITIONS,
    POSITIONS,
    ScoredText,
    scored_text,
)
from decodescope.variants.comparing.jobs import ACCURACY_MISSING, AccuracyDone
from decodescope.variants.machine.child_process import failure_of
from decodescope.variants.machine.memory import free_memory, memory_errors
from decodescope.variants.measuring.preparation import Prepared, prepare
from decodescope.variants.registry import build_variant, is_interpreted
from decodescope.variants.steps.eager import EagerStep
from decodescope.variants.steps.step import DecodeStep


def score_variants(
    config: WorkerConfig, variants: Sequence[str], text: str | None, say: Callable[[str], None]
) -> AccuracyDone:
    """The accuracy of `variants` on `text` (see `scored_text` for None).

    The model is loaded once, in the workload's dtype. The variants are built and freed one after
    the other, then the weights are upcast to fp32 in place for the reference. A variant that fails
    and a reference that does not fit in memory each add a finding.

    Raises:
        InputError, ModelError, MissingRequirement: as `prepare` and `scored_text`.
    """
    prepared = prepare(config, say)
    interpreted = any(is_interpreted(name, prepared.device) for name in variants)
    positions = INTERPRETED_POSITIONS if interpreted else POSITIONS
    scored = scored_text(prepared.loaded, text, positions)
    workload = replace(
        prepared.workload, context=scored.context, new_tokens=scored.positions, sampling=None
    )
    prepared = replace(prepared, workload=workload)
    logits: dict[str, torch.Tensor] = {}
    missing: dict[str, str] = {}
    for variant in variants:
        say(f"scoring {variant} on {scored.name}")
        try:
            logits[variant] = _variant_logits(variant, prepared, scored)
        except Exception as error:  # one variant's failure must not lose the others
            missing[variant] = failure_of(error).message
        free_memory(prepared.device)
    accuracies: dict[str, Accuracy] = {}
    if logits:
        say("scoring the fp32 reference")
        accuracies = _compared(logits, prepared, scored, missing)
    findings = [
        Finding(ACCURACY_MISSING, f"no accuracy of {variant}: {why}")
        for variant, why in missing.items()
    ]
    if prepared.loaded.weights == "random":
        message = (
            f"the weights of {prepared.loaded.name} are random: errors and agreement compare "
            "computations, perplexity says nothing about text"
        )
        findings.insert(0, Finding("random_weights", message))
    return AccuracyDone(accuracies, (*prepared.loaded.findings, *findings))


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


def _variant_logits(variant: str, prepared: Prepared, scored: ScoredText) -> torch.Tensor:
    workload, device = prepared.workload, prepared.device
    step = build_variant(variant, prepared.loaded, workload, device)
    with memory_errors(f"scoring variant {variant}", device):
        return forced_logits(step, scored, workload.batch)


def _compared(
    logits: dict[str, torch.Tensor], prepared: Prepared, scored: ScoredText, missing: dict[str, str]
) -> dict[str, Accuracy]:
    """Accuracy by variant; why a variant has none is added to `missing`."""
    try:
        reference = _reference_logits(prepared, scored)
    except DecodescopeError as error:
        missing |= dict.fromkeys(logits, f"no fp32 reference: {error}")
        return {}
    accuracies: dict[str, Accuracy] = {}
    name = f"eager on {prepared.device}, the same weights in fp32 without TF32"
    for variant, given in logits.items():
        try:
            accuracy = accuracy_of(given, reference, scored.next_ids, name, scored.name)
        except DecodescopeError as error:
            missing[variant] = str(error)
            continue
        if bad := unusable(accuracy):
            missing[variant] = f"{', '.join(bad)}; {_broken_positions(given)}"
        else:
            accuracies[variant] = accuracy
    return accuracies


def _reference_logits(prepared: Prepared, scored: ScoredText) -> torch.Tensor:
    """Upcasts the model in place, which loses its lower-precision weights."""
    with memory_errors("computing the fp32 reference", prepared.device), _without_tf32():
        prepared.loaded.model.float()
        step = EagerStep(prepared.loaded, replace(prepared.workload, dtype="fp32"))
        return forced_logits(step, scored, prepared.workload.batch)


def _broken_positions(logits: torch.Tensor) -> str:
    broken = int((~logits.isfinite().all(-1)).sum())
    return f"logits are NaN or infinite at {broken} of {len(logits)} positions"


@contextmanager
def _without_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
