"""The gate: does a step, or a part of it, take longer than in a baseline, by more than is allowed?

A figure fails if the interval of its ratio lies above what is allowed, and passes if the interval
lies below. Otherwise the samples are too noisy to decide, and the gate says how many more would
do. Noise alone fails one judged figure in forty at most: the interval is two-sided, of 95 %.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import median_low

from msgspec.structs import replace

from decodescope.analyzer.comparing.comparability import (
    differences,
    kv_differences,
    outlier_findings,
)
from decodescope.analyzer.comparing.gate_samples import KV_TOKENS, SOFTWARE, STEP
from decodescope.analyzer.comparing.step_interval import FEWEST, step_ratio
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.gate_report import (
    Baseline,
    GateReport,
    GateRow,
    GateVerdict,
    Subject,
)
from decodescope.analyzer.schema.report import Finding

_ONE_SAMPLE = (
    "one trace or round a side: only several show how far one run is from the next, so the real "
    "uncertainty is larger than the interval"
)
_Times = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """How much longer a step may take, and parts of it, by name; and the names of the conditions
    (as "driver") that may differ from those of the baseline."""

    step_percent: float = 0.0
    part_percents: Mapping[str, float] = field(default_factory=dict)
    conditions: frozenset[str] = frozenset()


def gate(baseline: Baseline, subjects: Sequence[Subject], allowed: Allowed) -> GateReport:
    """Judge each subject of the baseline.

    Raises:
        InputError: a subject of the baseline is missing, or was measured under other conditions; an
            allowed part is in neither side.
    """
    now = {subject.name: subject for subject in subjects}
    findings: list[Finding] = []
    for subject in baseline.subjects:
        if subject.name not in now:
            raise InputError(
                f"baseline {baseline.name}: has {_subject_words(subject)}, but the files have not; "
                "give files of the same kind and variants, or save a new baseline"
            )
        findings += _condition_findings(baseline, subject, now[subject.name], allowed)
        if len(subject.samples) == len(now[subject.name].samples) == 1:
            findings.append(Finding("single_samples", _ONE_SAMPLE))
        for side, one in (("baseline", subject), ("now", now[subject.name])):
            paths = [sample.path for sample in one.samples]
            findings += outlier_findings(side, paths, _step_times(one))
    known = {subject.name for subject in baseline.subjects}
    findings += [
        Finding("not_in_baseline", f"{_subject_words(subject)}: not in the baseline, not judged")
        for subject in subjects
        if subject.name not in known
    ]
    pairs = [(subject, now[subject.name]) for subject in baseline.subjects]
    rows = tuple(row for base, other in pairs for row in _rows(base, other, allowed))
    parts = {row.part for row in rows if row.part is not None}
    if unknown := [part for part in allowed.part_percents if part not in parts]:
        raise InputError(
            f"--allow {unknown[0]}=…: no such part; there are {', '.join(sorted(parts)) or 'none'}"
        )
    return GateReport(
        baseline=baseline.name,
        saved_at=baseline.saved_at,
        verdict=_worst({row.verdict for row in rows}),
        rows=rows,
        conditions=baseline.subjects[0].conditions,
        findings=tuple(findings),
    )


def _worst(verdicts: Set[GateVerdict | None]) -> GateVerdict:
    if "slower" in verdicts:
        return "slower"
    return "undecided" if "undecided" in verdicts else "within"


def _subject_words(subject: Subject) -> str:
    return "steps of traces" if subject.name == STEP else f"runs of {subject.name}"


def _condition_findings(
    baseline: Baseline, before: Subject, now: Subject, allowed: Allowed
) -> Iterator[Finding]:
    """Differences that are accepted, and those of software, which a gate may be there to judge."""
    differing = differences(before.conditions, now.conditions)
    for name in ("driver", *SOFTWARE):
        texts = before.conditions.get(name), now.conditions.get(name)
        if None not in texts and texts[0] != texts[1]:
            differing[name] = f"{name} {texts[0]} against {texts[1]}"
    refused = [name for name in differing if name not in (*allowed.conditions, *SOFTWARE)]
    if refused:
        options = " ".join(f"--accept {name}" for name in refused)
        named = ", ".join(differing[name] for name in refused)
        raise InputError(
            f"baseline {baseline.name}: differs in {named}; "
            f"save a new baseline, or compare nevertheless with {options}"
        )
    for name, text in differing.items():
        message = f"the baseline differs in {text}"
        yield Finding("other_software" if name in SOFTWARE else "other_conditions", message)
    tokens = [int(side.conditions.get(KV_TOKENS, 0)) for side in (before, now)]
    yield from kv_differences("the baseline", tokens[0], "now", tokens[1])


def _rows(base: Subject, now: Subject, allowed: Allowed) -> Iterator[GateRow]:
    step = _row(_step_times(base), _step_times(now), allowed.step_percent)
    yield step if base.name == STEP else replace(step, subject=base.name, counted_in="round")
    names = dict.fromkeys(
        part for subject in (base, now) for one in subject.samples for part in one.part_times_ns
    )
    rows = []
    for name in names:
        percent = allowed.part_percents.get(name)
        row = _row(_part_times(base, name), _part_times(now, name), percent)
        rows.append(replace(row, part=name))
    yield from sorted(rows, key=lambda row: -abs(row.now_ns - row.base_ns))


def _step_times(subject: Subject) -> _Times:
    return [sample.step_times_ns for sample in subject.samples]


def _part_times(subject: Subject, part: str) -> _Times:
    """The part's times in each sample; in one without the part, 0 in each of its steps."""
    return [
        sample.part_times_ns.get(part, (0,) * len(next(iter(sample.part_times_ns.values()))))
        for sample in subject.samples
        if sample.part_times_ns
    ]


def _row(base: _Times, now: _Times, allowed_percent: float | None) -> GateRow:
    """A figure of traces, without the name of its part."""
    row = GateRow(
        subject=STEP,
        part=None,
        base_ns=_median_of_samples(base),
        now_ns=_median_of_samples(now),
        ratio=None,
        interval=None,
        allowed_percent=allowed_percent,
        verdict=None if allowed_percent is None else "undecided",
        counted_in="step" if len(base) == len(now) == 1 else "trace",
    )
    if not row.base_ns or not row.now_ns:
        return row if allowed_percent is None else replace(row, verdict=_on_one_side(base, now))
    ratio = row.now_ns / row.base_ns
    measured_ratio = step_ratio(ratio, base, now)
    if measured_ratio is None:
        return replace(row, ratio=ratio, more_samples=FEWEST - 1)
    interval = measured_ratio.interval()
    row = replace(row, ratio=ratio, interval=interval)
    if allowed_percent is None:
        return row
    limit = 1 + allowed_percent / 100
    if interval.low > limit:
        return replace(row, verdict="slower")
    if interval.high <= limit:
        return replace(row, verdict="within")
    return replace(row, more_samples=measured_ratio.more(limit))


def _on_one_side(base: _Times, now: _Times) -> GateVerdict:
    """The verdict on a part that takes no time in the median of one side: it is slower if every
    sample has it now and none had it."""
    base_ns, now_ns = ([median_low(sample) for sample in side] for side in (base, now))
    if not any(now_ns):
        return "within"
    return "slower" if all(now_ns) and not any(base_ns) else "undecided"


def _median_of_samples(times_ns: _Times) -> int:
    return median_low(median_low(of_sample) for of_sample in times_ns) if times_ns else 0
