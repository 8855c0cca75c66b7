"""Details of a span of time."""

from collections.abc import Iterator

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window

_KERNELS, _NAME_CELLS = 12, 100
_THREADS = 4


def span_lines(window: Window, start_ns: int, end_ns: int) -> Iterator[DetailLine]:
    """How long it is; what each device did in it; the kernels that took most of it."""
    from decodescope.analyzer.lanes.totals import span_totals

    totals = span_totals(window.analysis, start_ns, end_ns)
    length_ns = max(totals.length_ns, 1)
    from_ns = start_ns - window.lanes.world[0]
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
    """What the threads that launch ops were in at `at_ns`, halfway through the span."""
    from decodescope.analyzer.attribution.host_paths import host_activity
    from decodescope.analyzer.lanes.host import owners

    trace = window.analysis.trace
    threads = [thread for thread, device in owners(trace).items() if device is not None]
    for pid, tid in threads[:_THREADS]:
        found = host_activity(trace, at_ns, pid, tid)
        parts = [part for part in (found.range, found.operator, found.call) if part]
        label = "host" if len(threads) == 1 else f"cpu {tid % 10_000}"
        if parts:
            yield DetailLine(label, f"halfway in {' ▸ '.join(parts)}")


def _share(ns: int, length_ns: int) -> str:
    return f"{duration(ns)}, {percent(ns / length_ns)} %"
