"""The lines that tell everything about a pick."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from decodescope.analyzer.answer.advice import gap_advice
from decodescope.analyzer.attribution.range_tree import host_activity
from decodescope.analyzer.names.fitted_names import cut_start
from decodescope.analyzer.reports.device_report import gap_report, idle_totals
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.gap_list import (
    GapChoice,
    chosen_gaps,
    gaps_of_group,
    grouped_gaps,
)
from decodescope.analyzer.reports.kernel_launches import kernels_within
from decodescope.analyzer.schema.report import GapReport
from decodescope.analyzer.tables.gaps_table import group_cause
from decodescope.analyzer.tables.kernels_table import short_names
from decodescope.analyzer.tables.ranges_table import range_lines
from decodescope.analyzer.text.formatting import UNKNOWN, count, duration, percent
from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap
from decodescope.analyzer.tracks.finding import span_totals
from decodescope.analyzer.tracks.host import owners
from decodescope.analyzer.vocabulary.words import (
    CPU_GAP_MEANINGS,
    GAP_MEANINGS,
    INFERRED_NOTE,
    device_words,
    ops_word,
)
from decodescope.tui.model.kernel_details import (
    DetailLine,
    kernel_group_lines,
    kernel_lines,
    op_lines,
    range_role_lines,
    spread_words,
)
from decodescope.tui.model.picks import (
    GapGroupPick,
    GapPick,
    KernelGroupPick,
    KernelPick,
    OpPick,
    RangePick,
    Selection,
    SpanPick,
)
from decodescope.tui.model.view import Window

_TITLE_CELLS = 32


def describe(selection: Selection, window: Window) -> tuple[str, Iterable[DetailLine]]:
    """The title and the lines of the details of `selection`, which selects something."""
    match selection.pick or RangePick(selection.within or ""):
        case KernelPick(name):
            lines = kernel_lines(window, name, selection.within)
            return f"Kernel {_title_name(window, name)}", lines
        case KernelGroupPick(by, name):
            lines = kernel_group_lines(window, by, name, selection.within)
            return f"Kernels of {cut_start(name, _TITLE_CELLS)}", lines
        case OpPick(row):
            trace = window.analysis.trace
            name = trace.names[int(trace.ops.name[row])]
            return f"Launch of {_title_name(window, name)}", op_lines(window, row)
        case GapPick(row):
            return "Gap", gap_lines(window, row)
        case GapGroupPick() as group:
            return "Gaps", gap_group_lines(window, group, gap_choice(selection, window.step))
        case SpanPick(start_ns, end_ns):
            return "Span", span_lines(window, start_ns, end_ns)
        case RangePick(path):
            return f"Range {cut_start(path, _TITLE_CELLS)}", range_detail_lines(window, path)


def _title_name(window: Window, name: str) -> str:
    return short_names(window.report.kernels, (name,)).of(name, _TITLE_CELLS)


def gap_choice(selection: Selection, step: int | None) -> GapChoice:
    chosen = selection.gaps
    return GapChoice(selection.within, step, chosen.gap_class, chosen.bucket_ns)


_KERNELS = 12
_NAME_CELLS = 100
_THREADS = 4


def span_lines(window: Window, start_ns: int, end_ns: int) -> Iterator[DetailLine]:
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
    names = short_names(window.report.kernels, (name for name, _, _ in longest))
    for name, ops, ns in longest:
        yield DetailLine(duration(ns), f"{count(ops)} \u00d7 {names.of(name, _NAME_CELLS)}")
    if len(totals.kernels) > _KERNELS:
        rest = totals.kernels[_KERNELS:]
        text = f"{len(rest):,} other kernels"
        yield DetailLine(duration(sum(ns for _, _, ns in rest)), text, "dim")


def _host_lines(window: Window, at_ns: int) -> Iterator[DetailLine]:
    """The ranges and calls of the threads that launch ops at `at_ns`, halfway through the span."""
    trace = window.analysis.trace
    threads = [thread for thread, device in owners(trace).items() if device is not None]
    for pid, tid in threads[:_THREADS]:
        activity = host_activity(trace, at_ns, pid, tid)
        parts = " ▸ ".join(filter(None, (activity.range, activity.operator, activity.call)))
        label = "host" if len(threads) == 1 else f"cpu {tid % 10_000}"
        yield DetailLine(label, parts and f"halfway in {parts}")


def _share(ns: int, length_ns: int) -> str:
    return f"{duration(ns)}, {percent(ns / length_ns)} %"


def gap_lines(window: Window, row: int) -> Iterator[DetailLine]:
    analysis = window.analysis
    gap = gap_report(analysis, analysis.ranges, row)
    yield DetailLine("", f"{duration(gap.length_ns)} idle: {gap.gap_class}", "strong")
    interruptions = interruptions_by_gap(analysis.gaps, analysis.interruptions).get(row, [])
    for interruption in interruptions:
        cause = interruption.cause.replace("_", " ")
        text = f"{cause}, {duration(interruption.length_ns)}: {interruption.evidence}"
        yield DetailLine("interruption", text, "warn")
    yield from _gap_part_lines(window, gap.length_ns, gap.parts, gap.host_wait)
    yield from _gap_place_lines(window, gap)
    if 2 * sum(interruption.length_ns for interruption in interruptions) > gap.length_ns:
        yield DetailLine(
            "→", "an interruption: it is set apart, and in no figure of a step", "accent"
        )
    else:
        yield DetailLine("→", gap_advice(gap.gap_class, gap.label, gap.call), "accent")
    yield from _gap_end_lines(gap)


def gap_group_lines(window: Window, pick: GapGroupPick, choice: GapChoice) -> Iterator[DetailLine]:
    """The figures of the gaps of a group that `choice` leaves, their cause and advice, and the
    surroundings of the longest one."""
    analysis, report = window.analysis, window.report
    chosen = chosen_gaps(analysis, analysis.ranges, choice)
    rows = gaps_of_group(analysis, chosen, pick.gap_class, pick.prev, pick.next)
    if not len(rows):
        yield DetailLine("", f"no such gap here: {pick.gap_class}", "dim")
        return
    (group,), rows = grouped_gaps(analysis, rows)
    yield DetailLine("", f"{duration(group.total_ns)} idle: {group_cause(group)}", "strong")
    idle_ns = sum(device.idle_ns for device in report.devices)
    yield DetailLine(
        "gaps", f"{count(group.count)}, {percent(group.total_ns / idle_ns)} % of all idle time"
    )
    yield DetailLine("each", spread_words(percentiles(analysis.gaps.length_ns[rows])))
    totals = idle_totals(analysis, np.sort(rows))
    parts, host_wait = (
        {name: total.total_ns for name, total in kinds.items() if total.count}
        for kinds in (totals.gaps, totals.host_wait)
    )
    yield from _gap_part_lines(window, group.total_ns, parts, host_wait)
    longest = gap_report(analysis, analysis.ranges, int(rows[0]))
    yield DetailLine("→", gap_advice(group.gap_class, group.label, longest.call), "accent")
    yield DetailLine("", f"the longest, {duration(longest.length_ns)}", "dim")
    yield from _gap_place_lines(window, longest)
    yield from _gap_end_lines(longest)


def _gap_end_lines(gap: GapReport) -> Iterator[DetailLine]:
    yield DetailLine("launched by", gap.call or "a call that is not in the trace")
    yield from _gap_host_lines(gap)
    yield DetailLine("in range", gap.range or "", fold=True)
    yield DetailLine("after", gap.prev, fold=True)
    yield DetailLine("before", gap.next, fold=True)


def _gap_part_lines(
    window: Window, length_ns: int, parts: Mapping[str, int], host_wait: Mapping[str, int]
) -> Iterator[DetailLine]:
    """Each part, those of one gap in the order of time, host_wait also by what the host did."""
    meanings = CPU_GAP_MEANINGS if window.report.on_cpu else GAP_MEANINGS
    for name, ns in parts.items():
        share = f", {percent(ns / length_ns)} %" if len(parts) > 1 else ""
        yield DetailLine(name, f"{duration(ns)}{share}: {meanings.get(name, '')}")
        if name == "host_wait" and len(host_wait) > 1:
            for label, of_it in host_wait.items():
                yield DetailLine(f"  {label}", duration(of_it), "dim")


def _gap_host_lines(gap: GapReport) -> Iterator[DetailLine]:
    host = gap.host
    if host is None:
        yield DetailLine("host", "no launching thread in the trace", "dim")
        return
    doing = {"host op": host.operator, "host call": host.call}
    if host.range != gap.range:
        doing["host range"] = host.range
    for label, text in doing.items():
        yield DetailLine(label, text or "")
    if not any(doing.values()):
        busy = f" ({gap.label})" if gap.label else ""
        yield DetailLine("host", f"in no operator and no CUDA call{busy}", "dim")


def _gap_place_lines(window: Window, gap: GapReport) -> Iterator[DetailLine]:
    report = window.report
    if gap.step is not None and 0 <= gap.step < len(report.steps):
        step = report.steps[gap.step]
        # On several devices, a step is idle only while all of them are.
        one_device = len(window.analysis.steps.devices[gap.step]) == 1
        idle_ns = step.idle_ns if one_device else None
        shares = [
            f"{percent(gap.length_ns / of_ns)} % of its {time}"
            for time, of_ns in (("GPU span", step.gpu_span_ns), ("idle time", idle_ns))
            if of_ns and gap.length_ns <= of_ns
        ]
        yield DetailLine("step", ", ".join([f"{gap.step}", *shares]))
    stream = "thread" if report.on_cpu else "stream"
    where = (
        f"{device_words(gap.device)}, {stream} {gap.stream if gap.stream is not None else UNKNOWN}"
    )
    yield DetailLine("on", where)
    yield DetailLine("at", f"{duration(gap.at_ns)} after the device's first op")


_RANGE_KERNELS = 6
_CERTAINTY = {
    "exact": "exact: launched inside the range",
    "partial": "partial: a graph replay, aligned with a step that ran without the graph",
    "none": "none: the ops of a graph replay that match nothing",
    "inferred": "inferred: by the names of kernels and their order in the step",
}


def range_detail_lines(window: Window, path: str) -> Iterator[DetailLine]:
    report = window.report
    rows = (row for by_layer in (False, True) for row in range_lines(report, by_layer=by_layer))
    line = next((row for row in rows if row.range.path == path), None)
    if line is None:
        yield DetailLine("", "not in this window", "dim")
        yield DetailLine("range", path, fold=True)
        return
    node = line.range
    time = "attributed" if report.overlapping else "time" if report.on_cpu else "GPU time"
    share = f"{percent(line.share)} % of busy time"
    yield DetailLine(time, f"{duration(line.time_ns)}, {share}", "strong")
    if report.overlapping:
        yield DetailLine("GPU time", f"{duration(node.gpu_ns)}, where ops overlap counted in each")
    if len(line.each_ns) > 1:
        shortest, longest = min(line.each_ns), max(line.each_ns)
        spread = f"{duration(shortest)} to {duration(longest)}"
        yield DetailLine("ranges", f"{len(line.each_ns)}, each {duration(line.mean_ns)}, {spread}")
    steps = report.main_steps.steps
    yield DetailLine("per step", duration(line.time_ns / steps) if steps > 1 else "")
    yield DetailLine("launches", count(node.launch_calls))
    yield DetailLine(ops_word(report), count(node.gpu_ops))
    idle_ns = report.main_steps.all_gaps.total_ns
    share = f", {percent(node.idle_ns / idle_ns)} % of all idle time" if idle_ns else ""
    yield DetailLine("idle", f"{duration(node.idle_ns)}{share}")
    for name, ns in sorted(node.gaps.items(), key=lambda class_and_ns: -class_and_ns[1]):
        yield DetailLine(f"  {name}", duration(ns))
    yield from range_role_lines(window, path, inferred=node.kind == "inferred")
    matched = "" if node.matched is None else f"; {percent(node.matched)} % of its ops match"
    certainty = _CERTAINTY["inferred" if node.kind == "inferred" else node.confidence]
    yield DetailLine("confidence", certainty + matched)
    if node.kind == "operator":
        yield DetailLine("", "an operator of the framework: the host opened no range here", "dim")
    yield DetailLine("", INFERRED_NOTE if node.kind == "inferred" else "", "dim")
    yield DetailLine("range", path, fold=True)
    yield DetailLine("", "longest operators" if report.on_cpu else "longest kernels", "dim")
    kernels = kernels_within(window.analysis, path)[:_RANGE_KERNELS]
    names = short_names(report.kernels, (kernel.name for kernel in kernels))
    for kernel in kernels:
        ns = kernel.attributed_ns if report.overlapping else kernel.total_ns
        share = f", {percent(ns / line.time_ns)} %" if line.time_ns else ""
        name = names.of(kernel.name, _NAME_CELLS)
        text = f"{duration(ns)}{share}, {count(kernel.count)}: {name}"
        yield DetailLine("", text)
