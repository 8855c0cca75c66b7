"""The launch calls of a trace: counts, times, queue depth and short kernels."""

import math
from collections.abc import Sequence

from rich.table import Table

from decodescope.analyzer.schema.kernel_report import LaunchReport, Percentiles
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    count,
    duration,
    number,
    percent,
)
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    plain_table,
    times_text,
)

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
