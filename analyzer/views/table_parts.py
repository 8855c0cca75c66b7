"""What the tables of a report share: sections, columns, widths."""

from collections.abc import Sequence
from typing import Literal

from rich.console import RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.report import Report

ROOMY_WIDTH = 100
MEDIUM_WIDTH = 80
_Justify = Literal["left", "right"]


def on_cpu(report: Report) -> bool:
    """Whether leaf operators of a CPU stand for GPU ops."""
    return any(device.device == "cpu" for device in report.devices)


def ops_word(report: Report) -> str:
    """What the ops of a report are called."""
    return "operators" if on_cpu(report) else "GPU ops"


def section(title: str, *content: RenderableType) -> RenderResult:
    """A blank line, the title, and what stands under it."""
    yield ""
    yield Text(title, style="bold")
    yield from content


def plain_table(*columns: str, left: int = 1) -> Table:
    """A table without lines; the first `left` columns are text, the rest numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        justify: _Justify = "left" if index < left else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    return table


def facts(rows: Sequence[tuple[str, str]], width: int) -> Table:
    """Names and what is said about them, one to a row; long texts wrap."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    names = max((len(name) for name, _ in rows), default=0)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(max_width=width - names - 4)
    for row in rows:
        table.add_row(*row)
    return table


def with_rest(table: Table, total: int, shown: int, what: str) -> Table:
    """The table with a last row that says how much is not shown."""
    if total > shown:
        table.add_row(Text(f"and {total - shown} more {what}", style="dim"))
    return table
