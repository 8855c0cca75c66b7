"""Scores variants against fp32: each decodes one text, and so do the same weights upcast."""

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from decodescope.analyzer.errors import DecodescopeError, first_line
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy
from decodescope.variants.comparing.accuracy import accuracy_of, unusable
from decodescope.variants.comparing.accuracy_text import ScoredText, scored_text
from decodescope.variants.comparing.jobs import ACCURACY_MISSING
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.eager import EagerStep
from decodescope.variants.steps.step import DecodeStep


@dataclass(frozen=True, slots=True)
class Scores:
    """The accuracy of each scored variant; `findings` says why the others have none."""

    accuracies: dict[str, Accuracy] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def leave_out(self, variant: str, why: str) -> None:
        """Record that `variant` has no accuracy."""
        self.findings.append(Finding(ACCURACY_MISSING, f"no accuracy of {variant}: {why}"))


def score_variants(
    config: WorkerConfig, variants: Sequence[str], text: str | None, say: Callable[[str], None]
) -> Scores:
    """The accuracy of `variants` on `text` (see `scored_text` for None).

    The model is loaded once, in the workload's dtype. The variants are built and freed one after
    the other, then the weights are upcast to fp32 in place for the reference. A variant that fails
    and a reference that does not fit in memory each add a finding.

    Raises:
        InputError, ModelError, MissingRequirement: as `prepare` and `scored_text`.
    """
    prepared = prepare(config, say)
    loaded, device = prepared.loaded, prepared.device
    scored = scored_text(loaded, text)
    workload = replace(
        prepared.workload, context=scored.context, new_tokens=scored.positions, sampling=None
    )
    scores = Scores()
    if loaded.weights == "random":
        scores.findings.append(
            Finding(
                "random_weights",
                f"the weights of {loaded.name} are random: errors and agreement compare "
                "computations, perplexity says nothing about text",
            )
        )
    logits: dict[str, torch.Tensor] = {}
    for variant in variants:
        say(f"scoring {variant} on {scored.name}")
        try:
            logits[variant] = _variant_logits(variant, loaded, workload, scored, device)
        except Exception as error:  # one variant's failure must not lose the others
            scores.leave_out(variant, _reason(error))
        _free(device)
    if logits:
        say("scoring the fp32 reference")
        _compare(scores, logits, loaded, workload, scored, device)
    return scores


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


def _variant_logits(
    variant: str, loaded: LoadedModel, workload: DecodeWorkload, scored: ScoredText, device: str
) -> torch.Tensor:
    step = build_variant(variant, loaded, workload, device)
    with memory_errors(f"scoring variant {variant}", device):
        return forced_logits(step, scored, workload.batch)


def _compare(
    scores: Scores,
    logits: dict[str, torch.Tensor],
    loaded: LoadedModel,
    workload: DecodeWorkload,
    scored: ScoredText,
    device: str,
) -> None:
    try:
        reference = _reference_logits(loaded, workload, scored, device)
    except DecodescopeError as error:
        for variant in logits:
            scores.leave_out(variant, f"no fp32 reference: {error}")
        return
    name = f"eager on {device}, the same weights in fp32 without TF32"
    for variant, given in logits.items():
        try:
            accuracy = accuracy_of(given, reference, scored.next_ids, name, scored.name)
        except DecodescopeError as error:
            scores.leave_out(variant, str(error))
            continue
        if bad := unusable(accuracy):
            scores.leave_out(variant, f"{', '.join(bad)}; {_broken_positions(given)}")
        else:
            scores.accuracies[variant] = accuracy


def _reference_logits(
    loaded: LoadedModel, workload: DecodeWorkload, scored: ScoredText, device: str
) -> torch.Tensor:
    """Upcasts the model in place, which loses its lower-precision weights."""
    with memory_errors("computing the fp32 reference", device), _without_tf32():
        loaded.model.float()
        step = EagerStep(loaded, replace(workload, dtype="fp32"))
        return forced_logits(step, scored, workload.batch)


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


def _free(device: str) -> None:
    """Free what the last variant held, including its CUDA graphs and their memory pools."""
    if device == "cuda":
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def _reason(error: Exception) -> str:
    if isinstance(error, DecodescopeError):
        return str(error)
    traceback.print_exception(error)
    return first_line(error)
