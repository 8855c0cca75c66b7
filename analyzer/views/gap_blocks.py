"""The longest gaps in a terminal: the place, ops and host of each on lines of their own."""

from rich.table import Table as RichTable
from rich.text import Text

from decodescope.analyzer.names.names import cut_middle, short_kernels
from decodescope.analyzer.schema.report import GapReport, Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.views.table_parts import plain_table
from decodescope.analyzer.vocabulary.words import device_words, gap_causes

_MIN_RANGE_CELLS = 8
_COLUMNS = ("at_ns", "length_ns")


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
