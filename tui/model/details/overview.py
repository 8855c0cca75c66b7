"""Details without a selection: the verdict with all its reasons, and the state of the trace."""

from collections.abc import Iterator

from decodescope.analyzer.vocabulary.words import bound_words, layers_words, straggler_text
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def overview_lines(window: Window) -> Iterator[DetailLine]:
    """What bounds the step, why, what to do next, and every finding."""
    report = window.report
    yield DetailLine("", bound_words(report.verdict.bound), "strong")
    for reason in report.verdict.because:
        yield DetailLine("", f"· {reason}")
    if window.waiting is not None:
        yield DetailLine("", f"· {straggler_text(window.waiting)}")
    for advice in report.verdict.next:
        yield DetailLine("", f"→ {advice}", "good")
    if report.structure is not None and report.structure.layers:
        yield DetailLine("step", layers_words(report.structure))
    for finding in report.health.findings:
        yield DetailLine(finding.code, finding.message, "warn")
