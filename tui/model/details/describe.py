"""Everything about a pick, as lines; of a kernel, a gap or a range in a file each."""

from collections.abc import Iterable, Iterator

from decodescope.analyzer.names.names import short_kernels
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.vocabulary.words import bound_words, layers_words, straggler_text
from decodescope.tui.model.details.gap import gap_lines
from decodescope.tui.model.details.kernel import kernel_lines, op_lines
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.details.range import range_detail_lines
from decodescope.tui.model.picks import (
    GapPick,
    KernelPick,
    OpPick,
    RangePick,
    Selection,
    SpanPick,
)
from decodescope.tui.model.view import Window


def describe(selection: Selection, window: Window) -> tuple[str, Iterable[DetailLine]]:
    """The title and the lines of the details of `selection`."""
    match selection.pick:
        case KernelPick(name):
            return "Kernel", kernel_lines(window, name, selection.within)
        case OpPick(row):
            return "Launch", op_lines(window, row)
        case GapPick(row):
            return "Gap", gap_lines(window, row)
        case RangePick(path):
            return "Range", range_detail_lines(window, path)
        case SpanPick(start_ns, end_ns):
            return "Span", span_lines(window, start_ns, end_ns)
    if selection.within is not None:
        return "Range", range_detail_lines(window, selection.within)
    return "Verdict", overview_lines(window)


def overview_lines(window: Window) -> Iterator[DetailLine]:
    """The bound of the step, its reasons, the advice, and every finding."""
    report = window.report
    yield DetailLine("", bound_words(report.verdict.bound), "strong")
    for reason in report.verdict.because:
        yield DetailLine("", f"· {reason}")
    if window.communication is not None:
        yield DetailLine("", f"· {straggler_text(window.communication)}")
    for advice in report.verdict.next:
        yield DetailLine("", f"→ {advice}", "good")
    if report.structure is not None and report.structure.layers:
        yield DetailLine("step", layers_words(report.structure))
    for finding in report.health.findings:
        yield DetailLine(finding.code, finding.message, "warn")


_KERNELS = 12
_NAME_CELLS = 100
_THREADS = 4


def span_lines(window: Window, start_ns: int, end_ns: int) -> Iterator[DetailLine]:
    """How long it is; what each device did in it; the kernels that took most of it."""
    from decodescope.analyzer.tracks.finding import span_totals

    totals = span_totals(window.analysis, start_ns, end_ns)
    length_ns = max(totals.length_ns, 1)
    from_ns = start_ns - window.tracks.world[0]
    yield DetailLine("", duration(totals.length_ns), "strong")
    yield DetailLine("from", f"{duration(from_ns)} to {duration(from_ns + totals.length_ns)}")
    yield DetailLine("launches", count(totals.launch_calls))
    yield from _host_lines(window, (start_ns + end_ns) // 2)
    for device in totals.devices:
        if len(totals.devices) > 1:
            label = device.label
            yield DetailLine("", f"GPU {label}" if isinstance(label, int) else label, "strong")
        yield DetailLine("ops", count(device.ops))
        yield DetailLine("busy", _share(device.busy_ns, length_ns))
        for name, ns in device.idle_ns:
            yield DetailLine(name, _share(ns, length_ns))
        if device.before_or_after_ns:
            text = f"{_share(device.before_or_after_ns, length_ns)}, before or after all ops"
            yield DetailLine("no ops", text, "dim")
    longest = totals.kernels[:_KERNELS]
    short = short_kernels((name for name, _, _ in longest), _NAME_CELLS)
    for name, ops, ns in longest:
        yield DetailLine(duration(ns), f"{count(ops)} \u00d7 {short[name]}")
    if len(totals.kernels) > _KERNELS:
        rest = totals.kernels[_KERNELS:]
        text = f"{len(rest):,} other kernels"
        yield DetailLine(duration(sum(ns for _, _, ns in rest)), text, "dim")


def _host_lines(window: Window, at_ns: int) -> Iterator[DetailLine]:
    """The ranges and calls of the threads that launch ops at `at_ns`, halfway through the span."""
    from decodescope.analyzer.attribution.range_tree import host_activity
    from decodescope.analyzer.tracks.host import owners

    trace = window.analysis.trace
    threads = [thread for thread, device in owners(trace).items() if device is not None]
    for pid, tid in threads[:_THREADS]:
        activity = host_activity(trace, at_ns, pid, tid)
        parts = [part for part in (activity.range, activity.operator, activity.call) if part]
        label = "host" if len(threads) == 1 else f"cpu {tid % 10_000}"
        if parts:
            yield DetailLine(label, f"halfway in {' ▸ '.join(parts)}")


def _share(ns: int, length_ns: int) -> str:
    return f"{duration(ns)}, {percent(ns / length_ns)} %"
