"""Compares measured runs of several variants: speed with its interval, and what changed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, zip_longest

from decodescope.analyzer.comparing.bootstrap import MIN_ROUNDS, mean_interval, paired_ratio
from decodescope.analyzer.comparing.comparability import window_findings, workload_differences
from decodescope.analyzer.comparing.pair_changes import pair_of
from decodescope.analyzer.comparing.standings import standings_of
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import (
    Change,
    Comparison,
    ComparisonResult,
    Interval,
    Pair,
    SpeedRatio,
    VariantRates,
)
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Report
from decodescope.analyzer.schema.run_report import DEFAULT_TILES, INTERPRETED, RunReport

Rounds = dict[int, RunReport]


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
    pairs = tuple(
        _pair(one, two, by_variant, windows)
        for one, two in dict.fromkeys(
            chain(((names[0], name) for name in names[1:]), pairwise(names))
        )
    )
    variants = tuple(_rates(name, rounds) for name, rounds in by_variant.items())
    return Comparison(
        schema_version=SCHEMA_VERSION,
        runs=tuple(runs),
        windows=dict(windows),
        comparison=ComparisonResult(
            rounds=len(set.intersection(*(set(rounds) for rounds in by_variant.values()))),
            variants=variants,
            pairs=pairs,
            findings=(*findings, *_findings(by_variant, windows)),
            gate=None,
            standings=standings_of(
                variants, lambda base, other: _speed(*_shared_rates(base, other, by_variant))
            ),
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
    scored = [run.accuracy for run in rounds.values() if run.accuracy is not None]
    return VariantRates(
        variant=variant,
        tokens_per_s=rates,
        mean=sum(rates) / len(rates) if rates else None,
        interval=mean_interval(rates),
        accuracy=scored[-1] if scored else None,
        interpreted=any(run.interpreted for run in rounds.values()),
    )


def _timed(rounds: Rounds, numbers: Sequence[int]) -> tuple[float, ...]:
    """tokens/s of these rounds; none of a variant that was interpreted."""
    rates = (rounds[number].tokens_per_s for number in numbers)
    return tuple(rate for rate in rates if rate is not None)


def _pair(
    base: str, other: str, by_variant: Mapping[str, Rounds], windows: Mapping[str, Report]
) -> Pair:
    base_rates, other_rates = _shared_rates(base, other, by_variant)
    batch = next(iter(by_variant[base].values())).batch
    return pair_of(
        (base, other),
        (windows.get(base), windows.get(other)),
        _speed(base_rates, other_rates),
        Change(_step_ns(base_rates, batch), _step_ns(other_rates, batch)),
    )


def _shared_rates(
    base: str, other: str, by_variant: Mapping[str, Rounds]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """tokens/s of both variants in the rounds that both have."""
    shared = sorted(by_variant[base].keys() & by_variant[other].keys())
    return _timed(by_variant[base], shared), _timed(by_variant[other], shared)


def _speed(base: Sequence[float], other: Sequence[float]) -> SpeedRatio | None:
    if not base or not other:
        return None
    rounds = f"{len(base)} round" if len(base) == 1 else f"{len(base)} rounds"
    reason = f"{rounds}: an interval needs at least {MIN_ROUNDS}"
    return speed_ratio(sum(other) / sum(base), paired_ratio(base, other), reason)


def _step_ns(tokens_per_s: Sequence[float], batch: int) -> float | None:
    """The step time that corresponds to the mean rate."""
    return batch * 1e9 * len(tokens_per_s) / sum(tokens_per_s) if tokens_per_s else None


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
    """The first position at which a variant's generated tokens differ from the first variant's."""
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


def _first_difference(one: list[list[int]], two: list[list[int]]) -> int | None:
    """The first position at which any sequence of the batch differs."""
    differing = (
        at
        for sequences in zip(one, two, strict=False)
        for at, (mine, theirs) in enumerate(zip_longest(*sequences))
        if mine != theirs
    )
    return min(differing, default=None)
