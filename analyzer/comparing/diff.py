"""Compares two traces, or several of each side."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from decodescope.analyzer.comparing.comparability import (
    kv_findings,
    outlier_findings,
    window_findings,
    work_differences,
)
from decodescope.analyzer.comparing.pair_changes import pair_of, part_changes
from decodescope.analyzer.comparing.step_interval import FEWEST, StepTimes, step_ratio
from decodescope.analyzer.schema.comparison_report import Diff, DiffAnswer, SideTrace
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Report
from decodescope.analyzer.text.formatting import counted
from decodescope.analyzer.vocabulary.words import step_ratio_text

BASE, OTHER = "A", "B"
INCONCLUSIVE = "inconclusive"


def diff_reports(base: Report, other: Report) -> Diff:
    """The changes from `base` (A) to `other` (B), and findings on what limits the comparison."""
    return diff_sides((base,), (other,))


def diff_sides(bases: Sequence[Report], others: Sequence[Report]) -> Diff:
    """The changes from the traces `bases` (A) to the traces `others` (B), at least one each. Parts,
    counts and ranges are those of the traces with the median step time."""
    base, other = median_trace(bases), median_trace(others)
    answer = diff_answer(bases, others)
    return Diff(
        schema_version=SCHEMA_VERSION,
        answer=answer,
        base=base,
        other=other,
        pair=pair_of((base.source.path, other.source.path), (base, other)),
        findings=(
            *_answer_findings(answer),
            *_step_findings(base, other),
            *_side_findings(BASE, base, bases),
            *_side_findings(OTHER, other, others),
            *_outlier_findings(answer),
            *kv_findings(base, other),
            *window_findings(BASE, base),
            *window_findings(OTHER, other),
        ),
    )


def median_trace(reports: Sequence[Report]) -> Report:
    """The trace with the (lower) median step time; the first, if none has a step time."""
    timed = [
        report
        for report in reports
        if report.answer.step_ns is not None and _counts(report, reports)
    ]
    ordered = sorted(timed, key=lambda report: report.answer.step_ns or 0)
    return ordered[(len(ordered) - 1) // 2] if ordered else reports[0]


def _counts(report: Report, side: Sequence[Report]) -> bool:
    """Whether the step times of one of a side's traces count: those of the host count only beside
    their like."""
    return bool(report.devices) or not any(other.devices for other in side)


def diff_answer(bases: Sequence[Report], others: Sequence[Report]) -> DiffAnswer:
    """Two sides of at least one trace each, by the traces with the median step time."""
    base, other = median_trace(bases), median_trace(others)
    base_ns, other_ns = base.answer.step_ns, other.answer.step_ns
    base_traces, other_traces = _side_traces(bases), _side_traces(others)
    differences = work_differences(base, other)
    ratio = _quotient(base_ns, other_ns)
    answer = DiffAnswer(
        base_step_ns=base_ns,
        other_step_ns=other_ns,
        ratio=ratio,
        interval=None,
        verdict="unknown",
        reason=f"A and B differ in {', '.join(differences)}" if differences else None,
        parts=part_changes(base.answer, other.answer),
        differences=differences,
        base_traces=base_traces,
        other_traces=other_traces,
        unprofiled_ratio=_quotient(base.answer.unprofiled_step_ns, other.answer.unprofiled_step_ns),
    )
    if differences or ratio is None:
        return answer
    return _judged(answer, ratio, _times(base_traces), _times(other_traces))


def _judged(answer: DiffAnswer, ratio: float, base: StepTimes, other: StepTimes) -> DiffAnswer:
    """The answer with its interval and verdict, and how much more data would decide; or why there
    is no interval, and how many steps it lacks."""
    measured_ratio = step_ratio(ratio, base, other)
    if measured_ratio is None:
        lacking = [max(FEWEST - len(side[0]), 0) for side in (base, other)]
        few = [
            f"{name} has {counted(len(side[0]), 'timed step')}"
            for name, side, lacks in zip((BASE, OTHER), (base, other), lacking, strict=True)
            if lacks
        ]
        reason = f"{' and '.join(few)}: an interval needs at least {FEWEST} a side"
        return replace(answer, reason=reason, more_base=lacking[0], more_other=lacking[1])
    interval = measured_ratio.interval()
    if interval.low > 1 or interval.high < 1:
        return replace(answer, interval=interval, verdict="slower" if ratio > 1 else "faster")
    more = measured_ratio.more()
    answer = replace(answer, interval=interval, verdict="no_difference_shown")
    return replace(answer, more_base=more, more_other=more)


def _quotient(base_ns: int | None, other_ns: int | None) -> float | None:
    return other_ns / base_ns if base_ns and other_ns else None


def _side_traces(reports: Sequence[Report]) -> tuple[SideTrace, ...]:
    return tuple(
        SideTrace(
            report.source.path,
            report.answer.step_ns,
            tuple(step.time_ns or 0 for step in report.steps if step.timed),
        )
        if _counts(report, reports)
        else SideTrace(report.source.path, None, ())
        for report in reports
    )


def _times(traces: Sequence[SideTrace]) -> StepTimes:
    """The step times of the traces that have some."""
    return [trace.step_times_ns for trace in traces if trace.step_times_ns]


def _answer_findings(answer: DiffAnswer) -> list[Finding]:
    """The differences of the sides, or how much data would decide, or what the interval lacks."""
    if answer.differences:
        message = (
            f"A and B differ in {', '.join(answer.differences)}: their step times stand side by "
            "side, and say nothing about which one is faster"
        )
        return [Finding("different_workloads", message)]
    if answer.ratio is None:
        return []
    if answer.verdict in ("faster", "slower"):
        if _over_traces(answer):
            return []
        message = (
            "the steps of one window depend on each other: the real uncertainty is larger than an "
            "interval over them says; several traces a side (--against) show it"
        )
        return [Finding("single_traces", message)]
    if answer.ratio == 1 and answer.interval is not None:
        return []
    message = f"inconclusive: {step_ratio_text(answer)}; {_what_decides(answer)}"
    return [Finding(INCONCLUSIVE, message)]


def _outlier_findings(answer: DiffAnswer) -> Iterator[Finding]:
    for name, side in ((BASE, answer.base_traces), (OTHER, answer.other_traces)):
        timed = [trace for trace in side if trace.step_times_ns]
        if answer.interval is not None:
            yield from outlier_findings(name, [trace.path for trace in timed], _times(timed))


def _what_decides(answer: DiffAnswer) -> str:
    if answer.more_base is None or answer.more_other is None:
        return "no practical number of steps would show a difference this small"
    what = "more trace" if _over_traces(answer) else "more step"
    sides = ((BASE, answer.more_base), (OTHER, answer.more_other))
    more = [f"{counted(number, what)} of {name}" for name, number in sides if number]
    return f"about {' and '.join(more)} would decide it"


def _over_traces(answer: DiffAnswer) -> bool:
    """Whether the interval is over traces, not over the steps of two."""
    return max(len(_times(answer.base_traces)), len(_times(answer.other_traces))) > 1


def _step_findings(base: Report, other: Report) -> list[Finding]:
    if base.steps and other.steps:
        return []
    if base.steps or other.steps:
        lacking = OTHER if base.steps else BASE
        message = f"{lacking} has no steps, so its figures per step are unknown"
        return [Finding("steps_on_one_side", message)]
    return [Finding("whole_traces", "no steps on either side: the figures are of whole traces")]


def _side_findings(name: str, median: Report, reports: Sequence[Report]) -> list[Finding]:
    """The traces of a side without ops or steps, or of other work than the median one."""
    findings = []
    for report in reports:
        lacking = "steps" if report.devices or not median.devices else "GPU ops"
        if lacking == "GPU ops" or (
            report.answer.step_ns is None and median.answer.step_ns is not None
        ):
            message = f"{name}: {report.source.path} has no {lacking} and does not count"
            findings.append(Finding("trace_without_steps", message))
        elif differences := work_differences(median, report):
            message = (
                f"{name}: {report.source.path} differs from {median.source.path} in "
                f"{', '.join(differences)}; compare traces of the same work"
            )
            findings.append(Finding("different_traces", message))
    return findings
