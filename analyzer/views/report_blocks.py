"""The longest gaps and the launch calls of a trace as blocks of lines in a terminal."""

import math
from collections.abc import Sequence

from rich.table import Table as RichTable
from rich.text import Text

from decodescope.analyzer.names.fitted_names import cut_middle, short_kernels
from decodescope.analyzer.schema.kernel_report import LaunchReport, Percentiles
from decodescope.analyzer.schema.report import GapReport, Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.text.formatting import UNKNOWN, count, duration, number, percent
from decodescope.analyzer.views.table_parts import MEDIUM_WIDTH, facts, plain_table, times_text
from decodescope.analyzer.vocabulary.words import device_words, gap_causes

_MIN_RANGE_CELLS = 8
_COLUMNS = ("at_ns", "length_ns")


_LEVELS = " ▁▂▃▄▅▆▇█"
_NAMES_CELLS = len("call to start") + 4
_STEP_ROWS = 10


def gap_blocks(table: Table[GapReport], report: Report, width: int) -> RichTable:
    """Each gap's time and length, and beside them what else is known of it, line by line."""
    cells = max(width - 24, 24)
    columns = [column for column in table.columns if column.key in _COLUMNS]
    drawn = plain_table()
    for column in columns:
        drawn.add_column(column.heading, justify=column.align, no_wrap=True)
    drawn.add_column("", no_wrap=True)
    for gap in table.rows:
        drawn.add_row(*(column.cell(gap) for column in columns), _described(gap, report, cells))
    return drawn


def _described(gap: GapReport, report: Report, cells: int) -> Text:
    causes = gap_causes(gap)
    text = Text(" + ".join(causes))
    if text.cell_len > cells:
        text = Text("\n").join(map(Text, causes))
    names = short_kernels((gap.prev, gap.next), cells - 7)
    for line in (
        _place(report, gap, cells),
        f"after {names[gap.prev]}",
        f"before {names[gap.next]}",
        f"host: {_host(gap, cells - 6)}",
    ):
        text.append(f"\n{line}", style="dim")
    return text


def _place(report: Report, gap: GapReport, cells: int) -> str:
    parts = [f"step {gap.step}"] if gap.step is not None else []
    if len(report.devices) > 1:
        parts.append(device_words(gap.device))
    parts.append(f"{'thread' if report.on_cpu else 'stream'} {gap.stream}")
    if gap.range is not None:
        room = cells - len(" · ".join([*parts, ""]))
        parts.append(cut_middle(gap.range, room))
    return " · ".join(parts)


def _host(gap: GapReport, cells: int) -> str:
    host = gap.host
    if host is None:
        return "no launching thread in the trace"
    doing = " · ".join(part for part in (host.operator, host.call) if part is not None)
    doing = cut_middle(doing or "in no operator or call", cells)
    room = cells - len(doing) - len(" · in ")
    if host.range is None or host.range == gap.range or room < _MIN_RANGE_CELLS:
        return doing
    return f"{doing} · in {cut_middle(host.range, room)}"


def launches_table(launches: LaunchReport, width: int) -> RichTable:
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
    return facts(rows, width)


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
