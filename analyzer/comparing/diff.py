"""Compares two traces, or several traces of two sides: steps, parts, counts, ranges and layers."""

from collections.abc import Sequence

from decodescope.analyzer.comparing.comparability import (
    kv_findings,
    structure_findings,
    window_findings,
    work_differences,
)
from decodescope.analyzer.comparing.pair_changes import pair_of
from decodescope.analyzer.comparing.step_answer import BASE, OTHER, diff_answer, median_trace
from decodescope.analyzer.schema.comparison_report import Diff, DiffAnswer
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Report
from decodescope.analyzer.text.formatting import count
from decodescope.analyzer.vocabulary.words import step_ratio_text

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
            *kv_findings(base, other),
            *structure_findings((BASE, OTHER), (base, other)),
            *window_findings(BASE, base),
            *window_findings(OTHER, other),
        ),
        gate=None,
    )


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
        return _single_traces(answer)
    if answer.ratio == 1 and answer.interval is not None:
        return []
    message = f"inconclusive: {step_ratio_text(answer)}; {_what_decides(answer)}"
    return [Finding(INCONCLUSIVE, message)]


def _what_decides(answer: DiffAnswer) -> str:
    if answer.more_base is None or answer.more_other is None:
        return "no practical number of steps would show a difference this small"
    sides = (
        (BASE, answer.more_base, answer.base_traces),
        (OTHER, answer.more_other, answer.other_traces),
    )
    more = [
        f"{_counted(number, 'more trace' if len(traces) > 1 else 'more step')} of {name}"
        for name, number, traces in sides
        if number
    ]
    return f"about {' and '.join(more)} would decide it"


def _counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def _single_traces(answer: DiffAnswer) -> list[Finding]:
    if len(answer.base_traces) > 1 and len(answer.other_traces) > 1:
        return []
    message = (
        "the steps of one window depend on each other: the real uncertainty is larger than an "
        "interval over them says; several traces a side (--against) show it"
    )
    return [Finding("single_traces", message)]


def _step_findings(base: Report, other: Report) -> list[Finding]:
    if base.steps and other.steps:
        return []
    if base.steps or other.steps:
        lacking = OTHER if base.steps else BASE
        message = f"{lacking} has no steps, so its figures per step are unknown"
        return [Finding("steps_on_one_side", message)]
    return [Finding("whole_traces", "no steps on either side: the figures are of whole traces")]


def _side_findings(name: str, median: Report, reports: Sequence[Report]) -> list[Finding]:
    """The traces of a side that have no steps, or are of other work than the one that stands for
    it."""
    findings = []
    for report in reports:
        if report.answer.step_ns is None and median.answer.step_ns is not None:
            message = f"{name}: {report.source.path} has no steps and does not count"
            findings.append(Finding("trace_without_steps", message))
        elif differences := work_differences(median, report):
            message = (
                f"{name}: {report.source.path} differs from {median.source.path} in "
                f"{', '.join(differences)}; compare traces of the same work"
            )
            findings.append(Finding("different_traces", message))
    return findings
