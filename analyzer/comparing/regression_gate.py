"""The regression gate: is anything slower than it was, by more than is allowed? And the questions
that a comparison leaves open.

A variant fails if its mean tokens/s is more than the allowed share below the baseline's and the
interval of their ratio is below 1, so noise alone fails nothing; a trace fails in the same way by
its step time. Without an interval nothing is shown and nothing fails: fewer rounds or steps never
make the gate stricter. A slowdown that is not shown is a finding, which says what would decide.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from decodescope.analyzer.comparing.bootstrap import MIN_ROUNDS, unpaired_ratio
from decodescope.analyzer.comparing.comparability import workload_differences
from decodescope.analyzer.comparing.comparison import speed_ratio
from decodescope.analyzer.comparing.diff import INCONCLUSIVE
from decodescope.analyzer.comparing.saved import decode_saved
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate, SpeedRatio
from decodescope.analyzer.schema.report import Environment, Finding, SamplingSettings
from decodescope.analyzer.schema.run_report import RunWorkload
from decodescope.analyzer.text.formatting import interval_text, ratio_text, significant
from decodescope.analyzer.vocabulary.words import speed_text, step_ratio_text

INCONCLUSIVE_GATE = "inconclusive_gate"
_NEW_BASELINE = "measure a new baseline with compare --json"
_DECIDED = ("faster", "slower")
_SOFTWARE = ("decodescope", "torch", "triton", "transformers", "cuda", "driver")


class _BaselineRun(RunWorkload, frozen=True):
    """The fields of an earlier run that the gate reads; the others may change."""

    tokens_per_s: float | None
    environment: Environment
    sampling: SamplingSettings | UnsetType | None = UNSET


class _BaselineRuns(Struct, frozen=True):
    runs: tuple[_BaselineRun, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The runs of an earlier `compare --json`, read from `path`, and the slowdown that is allowed
    (see `Gate`)."""

    path: str
    allowed_percent: float
    runs: tuple[_BaselineRun, ...]

    @property
    def rates(self) -> dict[str, list[float]]:
        """tokens/s of each variant's runs."""
        rates: dict[str, list[float]] = {}
        for run in self.runs:
            rates.setdefault(run.variant, []).append(run.tokens_per_s or math.nan)
        return rates


def read_baseline(
    baseline_json: bytes, path: str, variants: Collection[str], allowed_percent: float
) -> Baseline:
    """The baseline for a comparison of `variants`, so that a bad one is found before they run.

    Raises:
        InputError: `allowed_percent` is not at least 0 and below 100; the baseline is not a
            comparison's JSON, has another schema version, or has a variant that is missing from
            `variants`.
    """
    _check_allowed(allowed_percent)
    runs = decode_saved(baseline_json, path, _BaselineRuns, _NEW_BASELINE).runs
    if not runs or not all(0 < (run.tokens_per_s or 0) < math.inf for run in runs):
        raise InputError(f"{path}: has no measured runs; {_NEW_BASELINE}")
    baseline = Baseline(path, allowed_percent, runs)
    if missing := [name for name in baseline.rates if name not in variants]:
        raise InputError(
            f"{path}: the baseline has {', '.join(missing)}, which this comparison lacks; "
            f"add it to --variants, or {_NEW_BASELINE}"
        )
    return baseline


def require_same_workload(baseline: Baseline, run: object) -> None:
    """Compare the baseline's runs with a run, or with what is known of it before it is measured.

    Raises:
        InputError: the baseline has a different workload.
    """
    for before in baseline.runs:
        if differences := workload_differences(before, run):
            raise InputError(
                f"{baseline.path}: the baseline and this comparison have different workloads: "
                f"{', '.join(differences)}; compare the same, or {_NEW_BASELINE}"
            )


def check_baseline(comparison: Comparison, baseline: Baseline) -> Comparison:
    """The comparison with `gate` filled.

    The ratio's interval is `bootstrap.unpaired_ratio` over the rounds of each side. A variant that
    only this comparison has, other software, and a fall that may be noise are findings.

    Raises:
        InputError: the baseline has a different workload.
    """
    require_same_workload(baseline, comparison.runs[0])
    before, result, path = baseline.rates, comparison.comparison, baseline.path
    failures: list[str] = []
    findings = [*result.findings, *_software_findings(baseline, comparison)]
    for now in result.variants:
        if now.variant in before:
            name, speed = _speed(now.variant, before[now.variant], now.tokens_per_s)
            _judge(name, speed, baseline.allowed_percent, failures, findings)
        else:
            message = f"{now.variant} is not in the baseline {path}: the gate does not cover it"
            findings.append(Finding("not_in_baseline", message))
    gate = Gate(path, baseline.allowed_percent, tuple(failures))
    return replace(comparison, comparison=replace(result, gate=gate, findings=tuple(findings)))


def gate_diff(diff: Diff, allowed_percent: float) -> Diff:
    """The diff with `gate` filled: B fails if its step takes more than the allowed share longer
    than A's and the interval of the ratio is above 1. If it is not, a finding of the diff says so.

    Raises:
        InputError: `allowed_percent` is not at least 0 and below 100; a side has no step time; the
            sides are not of the same work on the same devices.
    """
    _check_allowed(allowed_percent)
    answer = diff.answer
    if answer.ratio is None:
        raise InputError(
            "--fail-on-regression: a side has no steps, so there is no step time to compare; put a "
            "range named decode_step around each step"
        )
    if answer.differences:
        raise InputError(
            f"--fail-on-regression: A and B differ in {', '.join(answer.differences)}; compare "
            "traces of the same work on the same devices"
        )
    failures: tuple[str, ...] = ()
    percent = (answer.ratio - 1) * 100
    if percent > allowed_percent and answer.verdict == "slower":
        base, other = (PurePath(path).name for path in (diff.pair.base, diff.pair.other))
        failures = (
            f"{other} against {base}: a step takes {percent:.1f} % longer, "
            f"{step_ratio_text(answer)}; allowed are {allowed_percent:g} %",
        )
    return replace(diff, gate=Gate(diff.pair.base, allowed_percent, failures))


def _judge(
    name: str,
    speed: SpeedRatio,
    allowed_percent: float,
    failures: list[str],
    findings: list[Finding],
) -> None:
    """Add a failure, or a finding if the slowdown may be noise."""
    percent, interval = (1 - speed.value) * 100, speed.interval
    if percent <= allowed_percent:
        return
    sure = f"no interval: {speed.reason}"
    if interval:
        confidence = f"{interval.confidence * 100:g} %"
        sure = f"{confidence} interval {interval_text(interval, ratio_text)}"
    sentence = (
        f"{name}: {percent:.1f} % slower, {ratio_text(speed.value)} ({sure}); "
        f"allowed are {allowed_percent:g} %"
    )
    if interval is not None and interval.high < 1:
        failures.append(sentence)
    else:
        message = f"{sentence}; this may be noise, measure more rounds"
        findings.append(Finding(INCONCLUSIVE_GATE, message))


def _speed(variant: str, before: Sequence[float], now: Sequence[float]) -> tuple[str, SpeedRatio]:
    """Both rates in words, and tokens/s now ÷ before."""
    old, new = sum(before) / len(before), sum(now) / len(now)
    rounds = f"{len(before)} rounds in the baseline, {len(now)} now, {MIN_ROUNDS} each are needed"
    name = f"{variant}, {significant(new)} tokens/s after {significant(old)}"
    return name, speed_ratio(new / old, unpaired_ratio(before, now), rounds)


def _check_allowed(allowed_percent: float) -> None:
    if not 0 <= allowed_percent < 100:
        raise InputError(
            f"--fail-on-regression {allowed_percent:g}: must be a percentage from 0 to below 100"
        )


def _software_findings(baseline: Baseline, comparison: Comparison) -> list[Finding]:
    before, now = baseline.runs[0].environment, comparison.runs[0].environment
    changed = [
        f"{name} {before.get(name)} then, {now.get(name)} now"
        for name in _SOFTWARE
        if before.get(name) != now.get(name)
    ]
    if not changed:
        return []
    message = f"other software than for the baseline {baseline.path}: {', '.join(changed)}"
    return [Finding("other_software", message)]


def undecided(result: Diff | Comparison) -> str:
    """Every ratio that shows neither side faster, and why. Equal step times leave nothing open."""
    reasons = _of_diff(result) if isinstance(result, Diff) else _of_comparison(result)
    open_questions = "; ".join(reasons)
    return open_questions and f"{INCONCLUSIVE}: {open_questions}"


def _of_diff(diff: Diff) -> Iterator[str]:
    answer = diff.answer
    for finding in diff.findings:
        if finding.code == INCONCLUSIVE:
            yield finding.message.removeprefix(f"{INCONCLUSIVE}: ")
    if answer.ratio is None or answer.differences:
        yield answer.reason or step_ratio_text(answer)


def _of_comparison(comparison: Comparison) -> Iterator[str]:
    result = comparison.comparison
    for pair in result.pairs:
        sides = f"{pair.other} against {pair.base}"
        if pair.speed is None:
            yield f"{sides}: no tokens/s on both sides"
        elif pair.speed.verdict not in _DECIDED:
            yield f"{sides}: {speed_text(pair.speed)}"
    for finding in result.findings:
        if finding.code == INCONCLUSIVE_GATE:
            yield finding.message
