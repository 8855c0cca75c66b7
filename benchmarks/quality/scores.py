"""Logits against a reference's, by position of a window: the sums, and the figures made of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

import msgspec
import torch

from decodescope.analyzer.comparing.bootstrap import CONFIDENCE, MIN_ROUNDS, two_sided_t
from decodescope.analyzer.schema.comparison_report import Interval


class Figures(msgspec.Struct, frozen=True):
    """The figures of `analyzer.schema.run_report.Accuracy`. `ratio_interval` is that of
    `perplexity_ratio`: Student's t over the windows, which count as independent."""

    positions: int
    perplexity: float
    perplexity_ratio: float
    ratio_interval: Interval | None
    kl: float
    top1_agreement: float
    logit_rel_error: float


class Growth(msgspec.Struct, frozen=True):
    """KL and logit error in equal bins of positions; `first_position` of the first one."""

    first_position: int
    positions_per_bin: int
    kl: tuple[float, ...]
    logit_rel_error: tuple[float, ...]


@dataclass(frozen=True)
class Distributions:
    """Logits of consecutive positions and their log softmax, float64 [positions, vocabulary]."""

    logits: torch.Tensor
    log_p: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor) -> "Distributions":
        """Those of `logits` of any dtype."""
        logits = logits.double()
        return cls(logits, logits.log_softmax(-1))

    def part(self, first: int, positions: int) -> "Distributions":
        """`positions` positions from `first` on."""
        if (first, positions) == (0, len(self.logits)):
            return self
        wanted = slice(first, first + positions)
        return Distributions(self.logits[wanted], self.log_p[wanted])

    @cached_property
    def p(self) -> torch.Tensor:
        """The probabilities."""
        return self.log_p.exp()


class Tally:
    """Sums over windows, at each of `positions` positions."""

    def __init__(self, positions: int) -> None:
        self._sums = torch.zeros(6, positions, dtype=torch.float64)
        self._loss_differences: list[float] = []

    def add(self, found: Distributions, reference: Distributions, next_ids: torch.Tensor) -> None:
        """Add one window, scored on the text's own next ids [positions]."""
        at_next = next_ids[:, None]
        sums = torch.stack(
            [
                (found.logits - reference.logits).square().sum(-1),
                reference.logits.square().sum(-1),
                (reference.p * (reference.log_p - found.log_p)).sum(-1),
                (found.logits.argmax(-1) == reference.logits.argmax(-1)).double(),
                -found.log_p.gather(-1, at_next).squeeze(-1),
                -reference.log_p.gather(-1, at_next).squeeze(-1),
            ]
        ).cpu()
        self._sums += sums
        self._loss_differences.append(float((sums[4] - sums[5]).mean()))

    def figures(self) -> Figures:
        """Over all positions of all windows."""
        positions = self._sums.shape[1] * len(self._loss_differences)
        difference, norm, kl, agreed, loss, reference_loss = self._sums.sum(1).tolist()
        return Figures(
            positions=positions,
            perplexity=math.exp(loss / positions),
            perplexity_ratio=math.exp((loss - reference_loss) / positions),
            ratio_interval=_interval(self._loss_differences),
            kl=kl / positions,
            top1_agreement=agreed / positions,
            logit_rel_error=math.sqrt(difference / norm),
        )

    def growth(self, first: int, positions: int, bins: int, place: int) -> Growth:
        """`positions` positions from `first` of these sums on, in `bins` bins; `place` is where in
        the window they begin."""
        size = positions // bins
        sums = self._sums[:, first : first + bins * size].reshape(6, bins, size).sum(-1)
        kl = sums[2] / (size * len(self._loss_differences))
        error = (sums[0] / sums[1]).sqrt()
        return Growth(place, size, tuple(kl.tolist()), tuple(error.tolist()))


def _interval(differences: Sequence[float]) -> Interval | None:
    if len(differences) < MIN_ROUNDS:
        return None
    error = stdev(differences) / math.sqrt(len(differences))
    half, middle = two_sided_t(CONFIDENCE, len(differences) - 1) * error, fmean(differences)
    return Interval(math.exp(middle - half), math.exp(middle + half), CONFIDENCE)
