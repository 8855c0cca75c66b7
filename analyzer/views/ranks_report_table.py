"""The reports of several ranks of one run as tables for a terminal: who waits for whom."""

from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.schema.ranks_report import (
    RanksReport,
)
from decodescope.analyzer.tables.ranks_table import ranks_table
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.views.rich_tables import rich_table
from decodescope.analyzer.views.table_parts import Fitted, section
from decodescope.analyzer.views.waiting_sections import waiting_sections


def ranks_report_table(report: RanksReport, by: str = "kernel") -> RenderableType:
    """Each rank in one line, the findings about them, who waits for whom, the skew of the steps,
    and the report of the merged trace."""
    return Fitted(partial(_parts, report, by))


def _parts(report: RanksReport, by: str, width: int) -> RenderResult:
    yield Text(f"{len(report.ranks)} ranks", style="bold")
    yield rich_table(ranks_table(report), width)
    yield from (Text(finding.message, style="yellow") for finding in report.findings)
    yield from waiting_sections(report.communication, width)
    if report.merged is not None:
        yield from section("All ranks on one clock", report_table(report.merged, by))
