"""Compares measured runs of several variants: speed with its interval, changes, and standings.

Standings say which variants are beaten in both speed and error, beyond noise. Speed is tokens/s,
error the KL of the logits to their fp32 reference. One variant beats another if it is shown better
in one of the two and not shown worse in the other. Shown means beyond noise:

- speed: the interval of the ratio over shared rounds (`bootstrap.paired_ratio`) does not contain 1;
- error: the difference of the KL in each block of positions of the text, which both decoded, has a
  mean that is more than t times its standard error from 0, with Student's t at 95 % for blocks - 1
  degrees of freedom (`accuracy_intervals` has the blocks).

With fewer than three rounds or blocks the means decide, as in the regression gate.

Differences within noise do not add up: B may beat A, and C beat B, each faster at an error that is
not shown worse, while C's error is shown worse than A's. So only an unbeaten variant beats another:
those that nothing beats come first, what they beat leaves, and so on with the rest. Should noise
let the rest beat each other in a circle, nothing is decided among them: all are unbeaten.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise, zip_longest

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.comparing.accuracy_intervals import few_positions
from decodescope.analyzer.comparing.bootstrap import (
    CONFIDENCE,
    MIN_ROUNDS,
    clustered_mean,
    mean_interval,
    paired_ratio,
    two_sided_t,
)
from decodescope.analyzer.comparing.comparability import window_findings, workload_differences
from decodescope.analyzer.comparing.pair_changes import pair_of, step_changes
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    ComparisonResult,
    Pair,
    SpeedRatio,
    Standing,
    VariantRates,
)
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Report
from decodescope.analyzer.schema.run_report import (
    DEFAULT_TILES,
    INTERPRETED,
    Accuracy,
    Interval,
    RunReport,
)
from decodescope.analyzer.text.formatting import counted

Speeds = Callable[[str, str], SpeedRatio | None]
Rounds = dict[int, RunReport]


def standings_of(variants: Sequence[VariantRates], speeds: Speeds) -> tuple[Standing, ...]:
    """The variants that have tokens/s and accuracy, fastest first, each with the unbeaten ones that
    beat it; none if fewer than two have both. `speeds(base, other)` is the ratio of tokens/s."""
    accuracies = {rates.variant: rates.accuracy for rates in variants if rates.accuracy is not None}
    ranked = sorted(
        (
            Standing(rates.variant, rates.mean, accuracies[rates.variant].kl, ())
            for rates in variants
            if rates.mean is not None and rates.variant in accuracies
        ),
        key=lambda standing: (-standing.tokens_per_s, standing.kl),
    )
    if len(ranked) < 2:
        return ()
    beaten_by: dict[str, list[str]] = {standing.variant: [] for standing in ranked}
    for base, other in combinations(beaten_by, 2):
        faster = _faster(speeds(base, other))
        closer = _closer(accuracies[base], accuracies[other])
        if min(faster, closer) >= 0 < max(faster, closer):
            beaten_by[base].append(other)
        elif min(faster, closer) < 0 >= max(faster, closer):
            beaten_by[other].append(base)
    unbeaten = _unbeaten(beaten_by)
    for name in unbeaten:
        beaten_by[name] = []
    return tuple(
        replace(
            standing,
            beaten_by=tuple(name for name in unbeaten if name in beaten_by[standing.variant]),
        )
        for standing in ranked
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
    blocks = len(base.kl_by_block)
    if len(other.kl_by_block) == blocks >= MIN_ROUNDS:
        gains = np.array(base.kl_by_block) - np.array(other.kl_by_block)
        mean, error = clustered_mean(gains, np.ones(blocks))
        if abs(mean) <= two_sided_t(CONFIDENCE, blocks - 1) * error:
            return 0
    return _sign(gain)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def compare_runs(
    runs: Sequence[RunReport], windows: Mapping[str, Report], findings: Sequence[Finding] = ()
) -> Comparison:
    """Compare every variant with the first one of `runs`, then each with the one before it.

    A ratio is mean tokens/s ÷ mean tokens/s over the rounds that both variants have, with the
    interval of `bootstrap.paired_ratio`. The changes inside a step come from `windows`, one
    profiled window of each variant. `findings` precede those made here.

    Raises:
        InputError: fewer than two variants, a run without a round or with one that its variant
            already has, runs of different workloads, or a run that took no time.
    """
    by_variant = _by_variant(runs)
    names = tuple(by_variant)
    if len(names) < 2:
        raise InputError("compare: needs runs of at least two variants; name another one")
    variants = tuple(_rates(name, rounds) for name, rounds in by_variant.items())
    bases = dict.fromkeys(chain(((names[0], name) for name in names[1:]), pairwise(names)))
    rounds = set.intersection(*(set(rounds) for rounds in by_variant.values()))
    return Comparison(
        schema_version=SCHEMA_VERSION,
        runs=tuple(runs),
        windows=dict(windows),
        comparison=ComparisonResult(
            rounds=len(rounds),
            variants=variants,
            pairs=tuple(_pair(*pair, by_variant, windows) for pair in bases),
            findings=(*findings, *_findings(by_variant, windows)),
            standings=standings_of(variants, lambda base, other: _speed(base, other, by_variant)),
        ),
    )


def speed_ratio(value: float, interval: Interval | None, reason: str) -> SpeedRatio:
    """A ratio of tokens/s with its verdict, and without an interval the reason for that."""
    if interval is None:
        return SpeedRatio(value, None, "unknown", reason)
    if interval.low > 1:
        return SpeedRatio(value, interval, "faster")
    return SpeedRatio(value, interval, "slower" if interval.high < 1 else "no_difference_shown")


def _by_variant(runs: Sequence[RunReport]) -> dict[str, Rounds]:
    by_variant: dict[str, Rounds] = {}
    for run in runs:
        where = f"compare: a run of {run.variant}"
        if run.round is None:
            raise InputError(f"{where} has no round; set round, counting from 0")
        if differences := workload_differences(runs[0], run):
            raise InputError(
                f"{where} and the first run have different workloads: {', '.join(differences)}; "
                "compare runs of one workload"
            )
        if not run.interpreted and not 0 < (run.tokens_per_s or 0) < math.inf:
            raise InputError(f"{where} took no time in round {run.round}; decode more tokens")
        rounds = by_variant.setdefault(run.variant, {})
        if run.round in rounds:
            raise InputError(f"{where} repeats round {run.round}; give each run its own round")
        rounds[run.round] = run
    return by_variant


def _rates(variant: str, rounds: Rounds) -> VariantRates:
    rates = _timed(rounds, sorted(rounds))
    return VariantRates(
        variant=variant,
        tokens_per_s=rates,
        mean=sum(rates) / len(rates) if rates else None,
        interval=mean_interval(rates),
        accuracy=_accuracy(rounds),
        interpreted=any(run.interpreted for run in rounds.values()),
    )


def _accuracy(rounds: Rounds) -> Accuracy | None:
    """That of the last run which has one: all runs of a variant are scored at once."""
    scored = (run.accuracy for run in reversed(rounds.values()))
    return next((accuracy for accuracy in scored if accuracy is not None), None)


def _timed(rounds: Rounds, numbers: Sequence[int]) -> tuple[float, ...]:
    """tokens/s of these rounds; none of a variant that was interpreted."""
    rates = (rounds[number].tokens_per_s for number in numbers)
    return tuple(rate for rate in rates if rate is not None)


def _pair(
    base: str, other: str, by_variant: Mapping[str, Rounds], windows: Mapping[str, Report]
) -> Pair:
    both = windows.get(base), windows.get(other)
    speed = _speed(base, other, by_variant)
    return pair_of((base, other), both, speed=speed, step=step_changes(*both))


def _speed(base: str, other: str, by_variant: Mapping[str, Rounds]) -> SpeedRatio | None:
    """From the rounds that both variants have; None without any that was timed."""
    shared = sorted(by_variant[base].keys() & by_variant[other].keys())
    base_rates, other_rates = (_timed(by_variant[variant], shared) for variant in (base, other))
    if not base_rates or not other_rates:
        return None
    reason = f"{counted(len(base_rates), 'round')}: an interval needs at least {MIN_ROUNDS}"
    ratio = sum(other_rates) / sum(base_rates)
    return speed_ratio(ratio, paired_ratio(base_rates, other_rates), reason)


def _findings(by_variant: Mapping[str, Rounds], windows: Mapping[str, Report]) -> Iterator[Finding]:
    every = {number for rounds in by_variant.values() for number in rounds}
    fewest = min(len(rounds) for rounds in by_variant.values())
    if fewest < MIN_ROUNDS:
        message = f"no intervals: they need {MIN_ROUNDS} rounds of each variant, there are {fewest}"
        yield Finding("few_rounds", message)
    for variant, rounds in by_variant.items():
        if missing := sorted(every - rounds.keys()):
            numbers = ", ".join(f"{number + 1}" for number in missing)
            message = f"{variant} has no run in round {numbers} of {len(every)}"
            yield Finding("missing_rounds", message)
    yield from _output_findings(by_variant)
    for variant, rounds in by_variant.items():
        if (accuracy := _accuracy(rounds)) and (message := few_positions(accuracy)):
            yield Finding("few_positions", f"{variant}: {message}")
    for variant in by_variant:
        for finding in next(iter(by_variant[variant].values())).health.findings:
            if finding.code == DEFAULT_TILES:
                yield Finding(finding.code, f"{variant}: {finding.message}")
        window = windows.get(variant)
        if any(run.interpreted for run in by_variant[variant].values()):
            yield Finding("interpreted", f"{variant} {INTERPRETED}")
        elif window is not None:
            yield from window_findings(variant, window)
        else:
            message = f"{variant} has no profiled window, so no figures of its steps"
            yield Finding("no_window", message)


def _output_findings(by_variant: Mapping[str, Rounds]) -> Iterator[Finding]:
    (first, reference), *others = (
        (variant, rounds[min(rounds)]) for variant, rounds in by_variant.items()
    )
    for variant, run in others:
        if run.prompt_token_ids != reference.prompt_token_ids:
            yield Finding("different_prompts", f"{variant} decoded another prompt than {first}")
            continue
        at = _first_difference(reference.output_token_ids, run.output_token_ids)
        if at is not None:
            message = (
                f"the tokens of {variant} differ from those of {first} from token {at + 1} "
                f"of {run.tokens} on; the accuracy figures say how far the logits are apart"
            )
            yield Finding("different_tokens", message)


def _first_difference(base: list[list[int]], other: list[list[int]]) -> int | None:
    differing = (
        at
        for sequences in zip(base, other, strict=False)
        for at, (base_token, other_token) in enumerate(zip_longest(*sequences))
        if base_token != other_token
    )
    return min(differing, default=None)
