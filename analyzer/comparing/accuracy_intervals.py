"""Intervals of perplexity ratio, KL and agreement, paired by position, and whether they suffice.

Both sides decode the same positions, so each position has a difference of its own: ln P - ln Q of
the text's token, the KL, and whether the most likely tokens are equal. What makes tokens hard to
predict cancels in it. Neighbouring positions resemble each other, so they do not count as
independent: the positions are cut into 16 consecutive blocks (the sequences that `compare`
decodes), and the spread of the blocks' means gives the standard error, with Student's t for 15
degrees of freedom. Batch means: B. Schmeiser, Batch Size Effects in the Analysis of Simulation
Output, Operations Research 30 (1982), who finds 10 to 30 batches enough; paired and clustered
errors of language models: E. Miller, Adding Error Bars to Evals, arXiv:2411.00640 (2024).

The intervals are of the positions of such a text. Those of another text may differ by more.
"""

import math
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.comparing.bootstrap import (
    CONFIDENCE,
    MIN_ROUNDS,
    Floats,
    clustered_mean,
    exponential_of_mean,
    paired_ratio,
    two_sided_t,
)
from decodescope.analyzer.schema.run_report import Accuracy, Interval
from decodescope.analyzer.text.formatting import interval_text

BLOCKS = 16
# Half of an interval that suffices: ±0.5 % of the perplexity ratio (unless it shows which side has
# less), half of the KL, 2 percentage points of agreement. MLPerf Inference asks of a quantised
# model at least 99 % or 99.9 % of the accuracy of the reference.
PERPLEXITY_HALF, KL_HALF, AGREEMENT_HALF = 0.005, 0.5, 0.02
_FIGURES = {
    "perplexity_ratio": "the ratio of perplexity",
    "kl": "KL",
    "top1_agreement": "the share of equal tokens",
}


@dataclass(frozen=True, slots=True)
class PositionScores:
    """At each position in the order of the text: `log_ratio` = ln P[i] - ln Q[i] for the text's
    next token i, `kl` = KL(P || Q) in nats, and `agrees` = 1 if both have the same argmax, else 0.
    P is the reference."""

    log_ratio: Floats
    kl: Floats
    agrees: Floats

    def by_block(self) -> tuple[Floats, Floats]:
        """The sums [3, blocks] and the number of positions of each block [blocks]."""
        blocks = min(BLOCKS, len(self.kl))
        values = np.stack([self.log_ratio, self.kl, self.agrees])
        parts = np.array_split(values, blocks, axis=1)
        sizes = np.array([part.shape[1] for part in parts], dtype=np.float64)
        return np.stack([part.sum(1) for part in parts], axis=1), sizes


def with_intervals(accuracy: Accuracy, scores: PositionScores) -> Accuracy:
    """`accuracy`, which has the means of `scores`, with its intervals and blocks; none for fewer
    than three blocks, and none of figures that are not finite."""
    (log_ratios, kls, agreements), sizes = scores.by_block()
    with_blocks = replace(accuracy, kl_by_block=tuple((kls / sizes).tolist()))
    finite = all(map(math.isfinite, (accuracy.kl, accuracy.perplexity_ratio)))
    if not finite or len(sizes) < MIN_ROUNDS:
        return replace(with_blocks, positions_needed=dict.fromkeys(_FIGURES))
    ratio = exponential_of_mean(log_ratios, sizes)
    kl = kl_interval(kls, sizes)
    agreement = agreement_interval(agreements, sizes)
    halves = {
        "perplexity_ratio": _half(ratio) / PERPLEXITY_HALF if ratio.low <= 1 <= ratio.high else 0.0,
        "kl": _half(kl) / (KL_HALF * accuracy.kl) if accuracy.kl > 0 else 0.0,
        "top1_agreement": _half(agreement) / AGREEMENT_HALF,
    }
    return replace(
        with_blocks,
        perplexity_ratio_interval=ratio,
        kl_interval=kl,
        top1_agreement_interval=agreement,
        positions_needed={
            name: _two_digits(accuracy.positions * half**2)
            for name, half in halves.items()
            if half > 1
        },
    )


def few_positions(accuracy: Accuracy) -> str:
    """Which figures had too few positions, their intervals, and how many would decide them; empty
    if there are enough."""
    if not accuracy.positions_needed:
        return ""
    words: list[str] = []
    for figure in accuracy.positions_needed:
        interval: Interval | None = getattr(accuracy, f"{figure}_interval")
        ends = f" ({interval_text(interval, '{:.4g}'.format)})" if interval else ""
        words.append(_FIGURES[figure] + ends)
    needed = [count for count in accuracy.positions_needed.values() if count is not None]
    advice = f"; about {max(needed):,} would decide" if needed else ""
    count = accuracy.positions
    positions = "1 position is" if count == 1 else f"{count:,} positions are"
    return f"{positions} too few for {' and '.join(words)}{advice}"


def kl_interval(sums: Floats, sizes: Floats) -> Interval:
    """On a logarithmic scale, because KL is positive and skewed; on a linear one if it is 0 in some
    block."""
    if sums.min() > 0:
        interval = paired_ratio(sizes.tolist(), sums.tolist())
        assert interval is not None
        return interval
    mean, error = clustered_mean(sums, sizes)
    half = two_sided_t(CONFIDENCE, len(sizes) - 1) * error
    return Interval(max(mean - half, 0.0), max(mean + half, 0.0), CONFIDENCE)


def agreement_interval(sums: Floats, sizes: Floats) -> Interval:
    """Wilson's interval of a share, for as many independent positions as would have the standard
    error of the blocks: C. Franco, R. Little, T. Louis, E. Slud, Comparative Study of Confidence
    Intervals for Proportions in Complex Sample Surveys, J. Survey Statistics and Methodology 7
    (2019). A share of 0 or 1 has no error, and counts all positions."""
    share, error = clustered_mean(sums, sizes)
    positions = float(sizes.sum())
    if error > 0:
        positions = min(positions, share * (1 - share) / error**2)
    t = two_sided_t(CONFIDENCE, len(sizes) - 1)
    middle = share + t**2 / (2 * positions)
    half = t * math.sqrt(share * (1 - share) / positions + t**2 / (4 * positions**2))
    scale = 1 + t**2 / positions
    # The share itself is inside, but for rounding.
    low, high = min((middle - half) / scale, share), max((middle + half) / scale, share)
    return Interval(max(low, 0.0), min(high, 1.0), CONFIDENCE)


def _half(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def _two_digits(positions: float) -> int:
    """Rounded up to two significant digits: the width of an interval is itself an estimate."""
    unit: int = 10 ** max(len(str(int(positions))) - 2, 0)
    return math.ceil(positions / unit) * unit
