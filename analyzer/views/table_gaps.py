"""Tables of gaps one by one and step by step."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import duration, plain_text
from decodescope.analyzer.schema.report import GAP_CLASSES, GapReport, Report, StepReport
from decodescope.analyzer.views.names import cut_middle, shorten_kernel
from decodescope.analyzer.views.table_parts import on_cpu, plain_table, with_rest

_STEP_ROWS = 10
_CLASS_CELLS = 16
_MIN_RANGE_CELLS = 8


def longest_gaps_table(report: Report, width: int) -> Table:
    """Each gap with the ops around it, where it lies and what the host was in."""
    table = plain_table("at", "length", "", left=0)
    table.columns[-1].justify = "left"
    cells = max(width - 24, 24)
    for gap in report.largest_gaps:
        what = Text(f"{gap.gap_class}: {gap.label}" if gap.label else gap.gap_class)
        for line in (
            _place(report, gap, cells),
            f"after {shorten_kernel(gap.prev, cells - 6)}",
            f"before {shorten_kernel(gap.next, cells - 7)}",
            f"host: {_host(gap, cells - 6)}",
        ):
            what.append(f"\n{line}", style="dim")
        table.add_row(duration(gap.at_ns), duration(gap.length_ns), what)
    return table


def _place(report: Report, gap: GapReport, cells: int) -> str:
    parts = [f"step {gap.step}"] if gap.step is not None else []
    if len(report.devices) > 1:
        parts.append(f"GPU {gap.device}")
    parts.append(f"{'thread' if on_cpu(report) else 'stream'} {gap.stream}")
    if gap.range is not None:
        room = cells - len(" · ".join([*parts, ""]))
        parts.append(cut_middle(plain_text(gap.range), room))
    return " · ".join(parts)


def _host(gap: GapReport, cells: int) -> str:
    host = gap.host
    if host is None:
        return "no launching thread in the trace"
    doing = " · ".join(part for part in (host.operator, host.call) if part is not None)
    doing = cut_middle(plain_text(doing or "in no operator or call"), cells)
    room = cells - len(doing) - len(" · in ")
    if host.range is None or host.range == gap.range or room < _MIN_RANGE_CELLS:
        return doing
    return f"{doing} · in {cut_middle(plain_text(host.range), room)}"


def steps_idle_table(report: Report, width: int) -> Table:
    """Idle time of each step by class: the classes that weigh most, as many as there is room."""
    sums = {name: sum(step.gaps.get(name, 0) for step in report.steps) for name in GAP_CLASSES}
    occurred = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    room = max((width - 24) // _CLASS_CELLS, 1)
    shown = occurred[:room]
    rest = occurred[room:]
    table = plain_table("step", "all idle", *shown, *(["others"] if rest else []))
    steps = report.steps[:_STEP_ROWS]
    for step in steps:
        table.add_row(
            f"{step.index}",
            duration(step.idle_ns),
            *(_idle(step, [name]) for name in shown),
            *([_idle(step, rest)] if rest else []),
        )
    return with_rest(table, len(report.steps), len(steps), "steps")


def _idle(step: StepReport, classes: list[str]) -> str:
    return duration(sum(step.gaps.get(name, 0) for name in classes) if step.gpu_ops else None)
