"""Table of ranges, and how surely ops were given to them."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, percent, plain_text
from decodescope.analyzer.schema.report import Attribution, RangeReport, Report
from decodescope.analyzer.views.names import cut_middle, range_rows
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    on_cpu,
    ops_word,
    plain_table,
    with_rest,
)


def ranges_table(report: Report, width: int, rows: int) -> Table:
    """The first `rows` ranges as a tree; those that operators stand in for are dim."""
    time = "time" if on_cpu(report) else "GPU time"
    with_launches = width >= MEDIUM_WIDTH
    launches = ["launches"] if with_launches else []
    table = plain_table("range", time, "idle", ops_word(report), *launches, "confidence")
    shown = report.ranges[:rows]
    cells = max(width - 44 - 10 * with_launches, 16)
    for row in range_rows(shown):
        found = row.found
        table.add_row(
            cut_middle("  " * row.depth + plain_text(row.label), cells),
            *(duration(found.gpu_ns), duration(found.idle_ns), count(found.gpu_ops)),
            *([count(found.launch_calls)] if with_launches else []),
            _confidence(found),
            style="dim" if found.kind == "operator" else None,
        )
    return with_rest(table, len(report.ranges), len(shown), "ranges")


def _confidence(found: RangeReport) -> str:
    if found.matched is None:
        return found.confidence
    return f"{found.confidence} {found.matched:.0%}"


def attribution_line(report: Report, attribution: Attribution) -> Text:
    """How many ops have a path, and how surely."""
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
    return Text(f"of {count(ops)} {ops_word(report)}: {', '.join(parts)} attributed", style="dim")
