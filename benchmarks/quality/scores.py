"""Logits against a reference's, by position of a window: the sums, and the figures made of them."""

import math
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import torch

from decodescope.analyzer.comparing.accuracy_intervals import agreement_interval, kl_interval
from decodescope.analyzer.comparing.bootstrap import MIN_ROUNDS, exponential_of_mean
from decodescope.analyzer.schema.run_report import Interval


class Figures(msgspec.Struct, frozen=True):
    """The figures of `analyzer.schema.run_report.Accuracy`. The windows are the blocks of the
    intervals, which are null for fewer than three; `ratio_interval` is that of
    `perplexity_ratio`."""

    positions: int
    perplexity: float
    perplexity_ratio: float
    ratio_interval: Interval | None
    kl: float
    top1_agreement: float
    logit_rel_error: float
    kl_interval: Interval | None = None
    top1_agreement_interval: Interval | None = None


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

    @cached_property
    def squared_norm(self) -> torch.Tensor:
        """||logits||² of each position."""
        return self.logits.square().sum(-1)

    @cached_property
    def top(self) -> torch.Tensor:
        """The id with the largest logit, at each position."""
        return self.logits.argmax(-1)


class Tally:
    """Sums over windows, at each of `positions` positions."""

    def __init__(self, positions: int) -> None:
        self._sums = torch.zeros(6, positions, dtype=torch.float64)
        self._windows: list[torch.Tensor] = []

    def add(self, found: Distributions, reference: Distributions, next_ids: torch.Tensor) -> None:
        """Add one window, scored on the text's own next ids [positions]."""
        at_next = next_ids[:, None]
        sums = torch.stack(
            [
                (found.logits - reference.logits).square().sum(-1),
                reference.squared_norm,
                (reference.p * (reference.log_p - found.log_p)).sum(-1),
                (found.top == reference.top).double(),
                -found.log_p.gather(-1, at_next).squeeze(-1),
                -reference.log_p.gather(-1, at_next).squeeze(-1),
            ]
        ).cpu()
        self._sums += sums
        self._windows.append(sums.sum(1))

    def figures(self) -> Figures:
        """Over all positions of all windows."""
        windows = torch.stack(self._windows, 1).numpy()
        _, _, kls, agreements, losses, reference_losses = windows
        sizes = np.full(len(self._windows), float(self._sums.shape[1]))
        enough = len(sizes) >= MIN_ROUNDS
        positions = self._sums.shape[1] * len(sizes)
        difference, norm, kl, agreed, loss, reference_loss = self._sums.sum(1).tolist()
        return Figures(
            positions=positions,
            perplexity=math.exp(loss / positions),
            perplexity_ratio=math.exp((loss - reference_loss) / positions),
            ratio_interval=exponential_of_mean(losses - reference_losses, sizes)
            if enough
            else None,
            kl=kl / positions,
            top1_agreement=agreed / positions,
            logit_rel_error=math.sqrt(difference / norm),
            kl_interval=kl_interval(kls, sizes) if enough else None,
            top1_agreement_interval=agreement_interval(agreements, sizes) if enough else None,
        )

    def growth(self, first: int, positions: int, bins: int, place: int) -> Growth:
        """`positions` positions from `first` of these sums on, in `bins` bins; `place` is where in
        the window they begin."""
        size = positions // bins
        sums = self._sums[:, first : first + bins * size].reshape(6, bins, size).sum(-1)
        kl = sums[2] / (size * len(self._windows))
        error = (sums[0] / sums[1]).sqrt()
        return Growth(place, size, tuple(kl.tolist()), tuple(error.tolist()))
