"""Details of one gap: how long, why, between which ops, and what to do."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from decodescope.analyzer.roofline.advice import gap_advice
from decodescope.analyzer.schema.report import GapReport
from decodescope.analyzer.text.formatting import UNKNOWN, duration, percent
from decodescope.analyzer.vocabulary.words import CPU_GAP_MEANINGS, GAP_MEANINGS, device_words
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window

if TYPE_CHECKING:
    from decodescope.analyzer.timing.interruptions.interruption import Interruption


def gap_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """Everything about the gap in this row of the analysis."""
    from decodescope.analyzer.reports.device_report import gap_report
    from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap

    analysis, report = window.analysis, window.report
    gap = gap_report(analysis, analysis.ranges, row)
    yield DetailLine("", f"{duration(gap.length_ns)} idle: {gap.gap_class}", "strong")
    interruptions = interruptions_by_gap(analysis.gaps, analysis.interruptions).get(row, [])
    yield from _interruption_lines(interruptions)
    yield from _parts(gap, CPU_GAP_MEANINGS if report.on_cpu else GAP_MEANINGS)
    if 2 * sum(interruption.length_ns for interruption in interruptions) > gap.length_ns:
        yield DetailLine(
            "→", "an interruption: the steady state and the verdict leave it out", "good"
        )
    else:
        yield DetailLine("→", gap_advice(gap.gap_class, gap.label, gap.call), "good")
    yield DetailLine("after", gap.prev)
    yield DetailLine("before", gap.next)
    yield DetailLine("launched by", gap.call or "a call that is not in the trace")
    yield from _host(gap)
    if gap.range is not None:
        yield DetailLine("in range", gap.range)
    yield from _place(window, gap)


def _interruption_lines(interruptions: Sequence["Interruption"]) -> Iterator[DetailLine]:
    """The interruptions during the gap, each with its evidence."""
    for interruption in interruptions:
        cause = interruption.cause.replace("_", " ")
        text = f"{cause}, {duration(interruption.length_ns)}: {interruption.evidence}"
        yield DetailLine("interruption", text, "warn")


def _parts(gap: GapReport, meanings: dict[str, str]) -> Iterator[DetailLine]:
    """Each part in the order of time, host_wait also by what the host did."""
    for name, ns in gap.parts.items():
        share = f", {percent(ns / gap.length_ns)} %" if len(gap.parts) > 1 else ""
        yield DetailLine(name, f"{duration(ns)}{share}: {meanings.get(name, '')}")
        if name == "host_wait" and len(gap.host_wait) > 1:
            for label, of_it in gap.host_wait.items():
                yield DetailLine(f"  {label}", duration(of_it), "dim")


def _host(gap: GapReport) -> Iterator[DetailLine]:
    """The range, operator and call of the launching thread halfway through the longest part."""
    host = gap.host
    if host is None:
        yield DetailLine("host", "no launching thread in the trace", "dim")
        return
    doing = {"host op": host.operator, "host call": host.call}
    if host.range != gap.range:
        doing["host range"] = host.range
    known = [(label, text) for label, text in doing.items() if text is not None]
    for label, text in known:
        yield DetailLine(label, text)
    if not known:
        busy = f" ({gap.label})" if gap.label else ""
        yield DetailLine("host", f"in no operator and no CUDA call{busy}", "dim")


def _place(window: Window, gap: GapReport) -> Iterator[DetailLine]:
    """Which step, device and stream, when, and how much of the step."""
    report = window.report
    if gap.step is not None and 0 <= gap.step < len(report.steps):
        step = report.steps[gap.step]
        # On several devices, a step is idle only while all of them are.
        one_device = len(window.analysis.steps.devices[gap.step]) == 1
        idle_ns = step.idle_ns if one_device else None
        shares = [
            f"{percent(gap.length_ns / of_ns)} % of its {what}"
            for what, of_ns in (("GPU span", step.gpu_span_ns), ("idle time", idle_ns))
            if of_ns and gap.length_ns <= of_ns
        ]
        yield DetailLine("step", ", ".join([f"{gap.step}", *shares]))
    stream = "thread" if report.on_cpu else "stream"
    where = (
        f"{device_words(gap.device)}, {stream} {gap.stream if gap.stream is not None else UNKNOWN}"
    )
    yield DetailLine("on", where)
    yield DetailLine("at", f"{duration(gap.at_ns)} after the device's first op")
