"""Which variants are beaten in both speed and error, beyond noise.

Speed is tokens/s, error the KL of the logits to their fp32 reference. One variant beats another if
it is shown better in one of the two and not shown worse in the other. Shown means beyond noise:

- speed: the interval of the ratio over shared rounds (`bootstrap.paired_ratio`) does not contain 1;
- error: the difference of the KL at each position of the text, which both decoded, has a mean that
  is more than t times its standard error from 0, with Student's t at 95 % for positions - 1
  degrees of freedom. Positions count as independent.

With fewer than three rounds or positions the means decide, as in the regression gate.

Differences within noise do not add up: B may beat A, and C beat B, each faster at an error that is
not shown worse, while C's error is shown worse than A's. So only an unbeaten variant beats another:
those that nothing beats come first, what they beat leaves, and so on with the rest. Should noise
let the rest beat each other in a circle, nothing is decided among them: all are unbeaten.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev

from decodescope.analyzer.comparing.bootstrap import CONFIDENCE, MIN_ROUNDS, two_sided_t
from decodescope.analyzer.schema.comparison_report import SpeedRatio, Standing, VariantRates
from decodescope.analyzer.schema.run_report import Accuracy

Speeds = Callable[[str, str], SpeedRatio | None]


def standings_of(variants: Sequence[VariantRates], speeds: Speeds) -> tuple[Standing, ...]:
    """The variants that have tokens/s and accuracy, fastest first, each with the unbeaten ones that
    beat it; none if fewer than two have both. `speeds(base, other)` is the ratio of tokens/s of two
    variants."""
    ranked = sorted(
        (
            (one.variant, one.mean, one.accuracy)
            for one in variants
            if one.mean is not None and one.accuracy is not None
        ),
        key=lambda found: (-found[1], found[2].kl),
    )
    if len(ranked) < 2:
        return ()
    beaten_by: dict[str, list[str]] = {name: [] for name, _, _ in ranked}
    for (base, _, base_accuracy), (other, _, other_accuracy) in combinations(ranked, 2):
        faster = _faster(speeds(base, other))
        closer = _closer(base_accuracy, other_accuracy)
        if min(faster, closer) >= 0 < max(faster, closer):
            beaten_by[base].append(other)
        elif min(faster, closer) < 0 >= max(faster, closer):
            beaten_by[other].append(base)
    unbeaten = _unbeaten(beaten_by)
    return tuple(
        Standing(
            name,
            tokens_per_s,
            accuracy.kl,
            () if name in unbeaten else tuple(n for n in unbeaten if n in beaten_by[name]),
        )
        for name, tokens_per_s, accuracy in ranked
    )


def _unbeaten(beaten_by: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names that no unbeaten name beats, in their order."""
    unbeaten: set[str] = set()
    left = set(beaten_by)
    while left:
        unbeaten |= {name for name in left if left.isdisjoint(beaten_by[name])} or left
        left = {n for n in left - unbeaten if unbeaten.isdisjoint(beaten_by[n])}
    return tuple(name for name in beaten_by if name in unbeaten)


def _faster(speed: SpeedRatio | None) -> int:
    """1 if the ratio shows the other variant faster than the base, -1 if slower, else 0."""
    if speed is None or speed.verdict == "no_difference_shown":
        return 0
    return _sign(speed.value - 1)


def _closer(base: Accuracy, other: Accuracy) -> int:
    """1 if the other variant's KL is shown to be smaller than the base's, -1 if larger, else 0."""
    gain = base.kl - other.kl
    one, two = base.kl_by_position, other.kl_by_position
    if len(one) == len(two) >= MIN_ROUNDS:
        gains = [before - after for before, after in zip(one, two, strict=True)]
        gain = fmean(gains)
        noise = two_sided_t(CONFIDENCE, len(gains) - 1) * stdev(gains) / math.sqrt(len(gains))
        if abs(gain) <= noise:
            return 0
    return _sign(gain)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
