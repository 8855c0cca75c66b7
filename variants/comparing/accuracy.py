"""The difference between two sets of logits: the formulas of `run_report.Accuracy`."""

import math

import torch
from msgspec.structs import asdict

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.schema.run_report import Accuracy

# Rows converted to float64 at a time: 20 MB a tensor with a vocabulary of 150,000.
_ROWS = 16


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
        found, kl = _scored(logits[rows].double(), reference[rows].double(), next_ids[rows])
        sums += found
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
