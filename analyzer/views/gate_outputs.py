"""A gate's report as a summary, as JUnit XML and as annotations of GitHub Actions; a baseline as a
summary."""

from collections.abc import Iterator
from xml.etree import ElementTree

from decodescope.analyzer.schema.gate_report import Baseline, GateReport, GateRow
from decodescope.analyzer.tables.gate_table import gate_table, samples_table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_table import Section, Summary
from decodescope.analyzer.vocabulary.gate_words import (
    condition_words,
    figure_words,
    outcome_words,
    row_sentence,
)

_LEVELS = {"slower": "error", "undecided": "warning"}
# https://docs.github.com/actions/reference/workflow-commands-for-github-actions
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}


def gate_summary(report: GateReport) -> Summary:
    return Summary(
        title=outcome_words(report),
        weights_note="",
        facts=(condition_words(report.conditions),),
        sections=(Section("Step, and its parts", gate_table(report.rows)),),
        findings=report.findings,
        failures=tuple(row_sentence(row) for row in report.rows if row.verdict == "slower"),
    )


def baseline_summary(baseline: Baseline) -> Summary:
    return Summary(
        title=f"baseline {baseline.name}, saved {baseline.saved_at}",
        weights_note="",
        facts=tuple(
            f"{subject.name}: {condition_words(subject.conditions)}"
            for subject in baseline.subjects
        ),
        sections=(Section("Samples", samples_table(baseline.subjects)),),
        findings=(),
    )


def gate_junit(report: GateReport) -> bytes:
    """One test case for each judged figure: one that is slower failed, an undecided one was
    skipped."""
    judged = [row for row in report.rows if row.verdict is not None]
    counts = {
        "tests": len(judged),
        "failures": sum(row.verdict == "slower" for row in judged),
        "skipped": sum(row.verdict == "undecided" for row in judged),
    }
    name = f"decodescope gate: {plain_line(report.baseline)}"
    suite = ElementTree.Element(
        "testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}}
    )
    for row in judged:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"gate.{plain_line(row.subject)}",
            name=plain_line(figure_words(row)),
        )
        if row.verdict != "within":
            tag = "failure" if row.verdict == "slower" else "skipped"
            ElementTree.SubElement(case, tag, message=plain_line(row_sentence(row)))
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def gate_annotations(report: GateReport) -> Iterator[str]:
    """One line for each figure that is slower or undecided."""
    for row in report.rows:
        if level := _LEVELS.get(row.verdict or ""):
            yield f"::{level} title=decodescope gate::{_escaped(row)}"


def _escaped(row: GateRow) -> str:
    sentence = plain_line(row_sentence(row))
    return "".join(_ESCAPES.get(character, character) for character in sentence)
