"""Tables of launch calls, steps, kernels and ranges."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.names.names import RangeRow, cut_middle, range_rows
from decodescope.analyzer.schema.kernel_report import KernelReport, Roofline
from decodescope.analyzer.schema.launch_report import LaunchReport, Percentiles
from decodescope.analyzer.schema.report import (
    Attribution,
    Report,
    StepReport,
)
from decodescope.analyzer.schema.structure_report import StepKindReport
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    count,
    duration,
    number,
    percent,
    significant,
)
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    columns_table,
    plain_table,
    times_text,
)
from decodescope.analyzer.vocabulary.words import ops_word, step_sizes

_LEVELS = " ▁▂▃▄▅▆▇█"
_NAMES_CELLS = len("call to start") + 4
_STEP_ROWS = 10


def launches_table(launches: LaunchReport, width: int) -> Table:
    """Counts, times, queue depth and short kernels, one to a row; long texts wrap."""
    apis = ", ".join(f"{name} {count(n)}" for name, n in launches.by_api.items())
    rows = {"calls": f"{count(launches.calls)}: {apis}"}
    if launches.graph_launches:
        sizes = launches.gpu_ops_per_graph_launch
        spread = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}-{max(sizes):,}"
        graphs = f"{count(launches.graph_launches)} graph launches of {spread} GPU ops each"
        rows["graphs"] = graphs
    rows |= {
        "call time": _percentiles(launches.api_ns, width),
        "queue time": _percentiles(launches.queue_ns, width),
        "call to start": _percentiles(launches.launch_latency_ns, width),
        "queue depth": _queue_depth(launches),
    }
    if (depth := launches.queue_depth) is not None and any(depth.over_time):
        rows["over time"] = _sparkline(depth.over_time, width - _NAMES_CELLS)
    if (short := launches.short_kernels) is not None and short.count:
        rows["short kernels"] = (
            f"{count(short.count)} ({percent(short.share)} %) ran for less time than their "
            f"launch call took: {duration(short.gpu_ns)} for {duration(short.api_ns)} of calls"
        )
    table = plain_table()
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(max_width=width - max(map(len, rows)) - 4)
    for row in rows.items():
        table.add_row(*row)
    return table


def _queue_depth(launches: LaunchReport) -> str:
    text = f"median {number(launches.median_queue_depth)} at a launch"
    depth = launches.queue_depth
    if depth is None:
        return text
    return (
        f"{text}; over time mean {number(depth.mean)}, max {count(depth.max)}, "
        f"empty {percent(depth.empty_share)} %"
    )


def _sparkline(depths: Sequence[int], cells: int) -> str:
    """One mark for each run of equally many depths, as high as the largest; blank only for zero."""
    each = max(math.ceil(len(depths) / cells), 1)
    largest = [max(depths[place : place + each]) for place in range(0, len(depths), each)]
    top = max(largest, default=0) or 1
    return "".join(_LEVELS[math.ceil(depth * (len(_LEVELS) - 1) / top)] for depth in largest)


def _percentiles(values: Percentiles | None, width: int) -> str:
    if values is None:
        return UNKNOWN
    shown = ("p50", "p90", "p99", "max") if width >= MEDIUM_WIDTH else ("p50", "p99")
    return times_text(values, shown)


def steps_table(report: Report, width: int) -> Table:
    """One row for each of the first steps; narrow tables omit its name and the host's time."""
    medium = width >= MEDIUM_WIDTH
    columns: list[Column[StepReport]] = [
        Column("step", partial(_name, width), text=True),
        Column("host", lambda step: duration(step.host_ns), medium),
        Column("op span" if report.on_cpu else "GPU span", lambda step: duration(step.gpu_span_ns)),
        Column("busy", lambda step: duration(step.busy_ns if step.gpu_ops else None)),
        Column("idle", lambda step: duration(step.idle_ns)),
        Column("idle %", lambda step: percent(_idle_share(step)), medium),
        Column("launches", lambda step: count(step.launch_calls)),
        Column(ops_word(report), lambda step: count(step.gpu_ops)),
    ]
    return columns_table(columns, report.steps, _STEP_ROWS, "steps")


def step_kinds_table(report: Report, width: int) -> Table:
    """One row for each kind and batch of steps; narrow tables omit the tokens computed."""
    columns: list[Column[StepKindReport]] = [
        Column("kind", lambda row: row.kind, text=True),
        Column("steps", lambda row: count(row.steps)),
        Column("batch", lambda row: step_sizes(row, report)[0]),
        Column("tokens computed", lambda row: count(row.query_tokens), width >= MEDIUM_WIDTH),
        Column("KV tokens", lambda row: step_sizes(row, report)[1]),
        Column("median step", lambda row: duration(row.median_ns)),
    ]
    return columns_table(columns, report.step_kinds, _STEP_ROWS, "kinds of steps")


def _name(width: int, step: StepReport) -> str:
    if width < MEDIUM_WIDTH:
        return f"{step.index}"
    name = step.name if step.name[-1:].isdigit() else f"{step.name} {step.index}"
    return cut_middle(name, width - 64)


def _idle_share(step: StepReport) -> float | None:
    if step.idle_ns is None or not step.gpu_span_ns:
        return None
    return step.idle_ns / step.gpu_span_ns


def kernels_table(report: Report, width: int, rows: int) -> Table:
    """The first `rows` kernels; if ops overlap, attributed times stand in place of total durations.
    Narrow tables show either the mean or the roofline, roomy ones add how many calls were short and
    which peak limits the kernel."""
    shown, attributed = report.kernels[:rows], report.overlapping
    known = any(kernel.roofline is not None for kernel in shown)
    with_mean = width >= MEDIUM_WIDTH or not known
    roomy = width >= ROOMY_WIDTH
    with_short = roomy and any(kernel.short_calls for kernel in shown)
    taken = 30 + attributed + 10 * with_mean + 9 * with_short + (17 + 9 * roomy) * known
    names = short_kernels((kernel.name for kernel in shown), max(width - taken, 13))
    columns: list[Column[KernelReport]] = [
        Column("name", lambda kernel: names[kernel.name], text=True),
        Column("calls", lambda kernel: count(kernel.count)),
        Column("short", lambda kernel: count(kernel.short_calls), with_short),
        Column("total", lambda kernel: duration(kernel.total_ns), not attributed),
        Column("attributed", lambda kernel: duration(kernel.attributed_ns), attributed),
        Column("mean", lambda kernel: duration(kernel.mean_ns), with_mean),
        Column("share", partial(_share, attributed)),
        Column("GB/s", partial(_roofline, lambda of: significant(of.bytes_per_s / 1e9)), known),
        Column("of limit", partial(_roofline, _share_of_limit), known),
        Column("limit", partial(_roofline, lambda of: of.limit or UNKNOWN), known and roomy),
    ]
    return columns_table(columns, report.kernels, rows, "kernels")


def _share(attributed: bool, kernel: KernelReport) -> str:
    return f"{percent(kernel.attributed_share if attributed else kernel.share)} %"


def _roofline(text: Callable[[Roofline], str], kernel: KernelReport) -> str:
    return text(kernel.roofline) if kernel.roofline else ""


def _share_of_limit(found: Roofline) -> str:
    share = found.share_of_limit
    return UNKNOWN if share is None else f"{percent(share)} %"


def ranges_table(report: Report, width: int, rows: int) -> Table:
    """The first `rows` ranges as a tree, with attributed times in place of busy times if ops
    overlap; paths of framework operators are dim."""
    with_launches, attributed = width >= MEDIUM_WIDTH, report.overlapping
    busy = "time" if report.on_cpu else "GPU time"
    cells = max(width - 44 - 10 * with_launches, 16)
    columns: list[Column[RangeRow]] = [
        Column("range", lambda row: _indented(row, cells), text=True),
        Column(busy, lambda row: duration(row.found.gpu_ns), not attributed),
        Column("attributed", lambda row: duration(row.found.attributed_ns), attributed),
        Column("idle", lambda row: duration(row.found.idle_ns)),
        Column(ops_word(report), lambda row: count(row.found.gpu_ops)),
        Column("launches", lambda row: count(row.found.launch_calls), with_launches),
        Column("confidence", _confidence),
    ]
    return columns_table(
        columns,
        range_rows(report.ranges),
        rows,
        "ranges",
        style=lambda row: "dim" if row.found.kind == "operator" else None,
    )


def _indented(row: RangeRow, cells: int) -> str:
    return cut_middle("  " * row.depth + row.label, cells)


def _confidence(row: RangeRow) -> str:
    matched = row.found.matched
    return row.found.confidence + ("" if matched is None else f" {matched:.0%}")


def attribution_line(report: Report, attribution: Attribution) -> Text:
    """How many ops have a path, by confidence."""
    ops = attribution.exact + attribution.partial + attribution.none
    parts = [
        f"{percent(number / ops)} % {word}"
        for number, word in (
            (attribution.exact, "exactly"),
            (attribution.partial, "partially"),
            (attribution.none, "not"),
        )
        if number
    ]
    said = f"of {count(ops)} {ops_word(report)}: {', '.join(parts)} attributed"
    if attribution.inferred:
        said += f"; {percent(attribution.inferred / ops)} % have a path inferred from kernel names"
    return Text(said, style="dim")
